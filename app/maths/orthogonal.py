"""Orthogonal and nearly orthogonal maps on the stream axis, and how far a matrix is from being one."""

import torch
from torch import Tensor

from app.maths.cayley import cayley_angle, cayley_rotate
from app.maths.direction import unit, wide, working
from app.maths.householder import delta, householder_reflect
from app.maths.representation import thin
from app.maths.sinkhorn import sinkhorn, stochasticity_error

__all__ = [
    "cayley_angle",
    "cayley_iterate",
    "cayley_iteration",
    "cayley_rotate",
    "delta",
    "eigenvalues",
    "householder_reflect",
    "kronecker_mixing",
    "log10_error",
    "matmul",
    "orthogonality_error",
    "quaternion_rotate",
    "sinkhorn",
    "stochasticity_error",
]


def orthogonality_error(matrix: Tensor) -> Tensor:
    """Takes max|QᵀQ − I| over the entries of ``[..., m, n]``: shape ``[...]``, in float64 where it exists."""
    q = wide(matrix)
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    return (q.mT @ q - eye).abs().amax((-2, -1))


def log10_error(error: Tensor) -> Tensor:
    """log₁₀ of an error ≥ 0, at least −12: a curve of it has a logarithmic axis wherever it is drawn."""
    return error.clamp(min=1e-12).log10()


def eigenvalues(matrix: Tensor, count: int = 64) -> Tensor:
    """The eigenvalues of at most ``count`` of the matrices ``[..., n, n]``, evenly taken.

    Returns:
        ``[count·n, 2]`` real and imaginary parts, float32. Those of a matrix that is not finite are NaN.
    """
    some = thin(matrix.flatten(0, -3), count).float()
    finite = some.isfinite().all(-1).all(-1)
    # The decomposition refuses what is not finite; it sees zeros instead.
    values = torch.linalg.eigvals(torch.where(finite[:, None, None], some, 0))
    return torch.where(finite[:, None, None], torch.view_as_real(values), torch.nan).flatten(0, 1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of small matrices, ``[..., m, k]`` and ``[..., k, n]``, in float32 at least.

    Elementwise products and sums, so that neither autocast nor TF32 rounds the residual stream.
    """
    return (working(a).unsqueeze(-1) * working(b).unsqueeze(-3)).sum(-2)


def cayley_iterate(x: Tensor, skew: Tensor, alpha: float = 0.1, iterations: int = 2) -> Tensor:
    """JPmHC's approximation Y of the Cayley transform of αW, applied: y₀ = x + αWx, y ← x + (α/2)·W(x + y).

    Args:
        x: ``[..., n, d]``, d columns of length n.
        skew: ``[..., n, n]``, W = −Wᵀ.
        alpha: scale of W.
        iterations: fixed-point steps. The limit is (I − αW/2)⁻¹(I + αW/2)x, reached only while ‖αW/2‖ < 1.

    Returns:
        Y x, ``[..., n, d]`` in float32 at least; O(n²) a column. Y is orthogonal up to
        O(‖αW/2‖^(iterations + 2)) and not at all for large W.

    Source:
        JPmHC, arXiv:2602.18308.
    """
    w, start = working(skew), working(x)
    y = start + alpha * matmul(w, start)
    for _ in range(iterations):
        y = start + (alpha / 2) * matmul(w, start + y)
    return y


def cayley_iteration(skew: Tensor, alpha: float = 0.1, iterations: int = 2) -> Tensor:
    """The matrix Y of :func:`cayley_iterate`, ``[..., n, n]``."""
    w = working(skew)
    eye = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return cayley_iterate(eye, w, alpha, iterations)


def quaternion_rotate(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Multiplies the columns of ``x``, read as quaternions, by unit quaternions on both sides: q x r̄.

    Every rotation of R⁴ is of this form. With half-angles a and b of q and r it turns two orthogonal planes
    by a + b and a − b; −I (q = −1, r = 1) is a regular point.

    Args:
        x: ``[..., 4, d]``, d columns (real part first).
        left: ``[..., 4]``, q before normalisation; any finite values, where 0 counts as 1.
        right: ``[..., 4]``, r, likewise.

    Returns:
        ``[..., 4, d]`` in the dtype of ``x``; computed in float32 at least.

    Raises:
        ValueError: where the stream axis is not 4.

    Source:
        oHC, arXiv:2609.02672; the two-sided form is A. Cayley's (1855).
    """
    if not x.shape[-2] == left.shape[-1] == right.shape[-1] == 4:
        sizes = f"{x.shape[-2]}, {left.shape[-1]} and {right.shape[-1]}"
        raise ValueError(f"the stream axis of x, left and right must be 4, got {sizes}")
    columns = working(x)
    q, r = (_unit_quaternion(nu).to(columns.dtype).unsqueeze(-1) for nu in (left, right))
    conjugate = torch.cat((r[..., :1, :], -r[..., 1:, :]), -2)
    return _hamilton(_hamilton(q, columns), conjugate).to(x.dtype)


def _unit_quaternion(nu: Tensor) -> Tensor:
    one = torch.eye(1, 4, dtype=nu.dtype, device=nu.device).squeeze(0)
    direction, _ = unit(wide(torch.where((nu == 0).all(-1, keepdim=True), one, nu)))
    return direction


def _hamilton(p: Tensor, q: Tensor) -> Tensor:
    """The quaternion product of ``[..., 4, d]`` and ``[..., 4, d]``, column by column."""
    a, b, c, d = p.unbind(-2)
    e, f, g, h = q.unbind(-2)
    return torch.stack(
        (
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ),
        -2,
    )


def kronecker_mixing(logits: Tensor) -> Tensor:
    """KromHC's doubly stochastic matrix U₁ ⊗ … ⊗ U_m, U_i = [[p, 1−p], [1−p, p]], p the first of
    softmax(logits_i).

    Symmetric, so it never rotates; its eigenvalues are the products of 1 and 2p_i − 1.

    Args:
        logits: ``[..., m, 2]``.

    Returns:
        ``[..., 2^m, 2^m]`` in float32 at least.

    Source:
        KromHC, arXiv:2601.21579.
    """
    p = torch.softmax(working(logits), -1)
    factors = torch.stack((p, p.flip(-1)), -2)  # rows (p, 1−p) and (1−p, p)
    product = factors[..., 0, :, :]
    for i in range(1, factors.shape[-3]):
        block = product[..., :, None, :, None] * factors[..., i, None, :, None, :]
        product = block.flatten(-4, -3).flatten(-2, -1)
    return product
