"""The Householder reflection and the delta operator: a rank-1 change of the stream along one direction."""

from torch import Tensor

from app.maths.direction import along, outer, unit, wide, working


def householder_reflect(x: Tensor, k: Tensor) -> Tensor:
    """Reflects the columns of ``x`` at the hyperplane normal to k: x − 2 k(kᵀx)/(kᵀk).

    Symmetric, its own inverse, det −1; exactly one direction changes its sign. The identity, with zero
    gradient, where k = 0.

    Args:
        x: ``[..., n, d]``, d columns of length n, any floating dtype.
        k: ``[..., n]``, any finite values, not necessarily normalised. Leading axes broadcast.

    Returns:
        ``[..., n, d]`` in the dtype of ``x``; computed in float32 at least. In float32 norms and inner
        products of columns are kept to 2e-6, for every finite input, and autocast and TF32 settings change
        nothing.

    Raises:
        ValueError: where the stream axes of x and k differ.

    Source:
        A. S. Householder (1958), doi:10.1145/320941.320947.
    """
    columns, direction = _prepare(x, k)
    return (columns - outer(direction, 2 * along(direction, columns), columns.dtype)).to(x.dtype)


def delta(x: Tensor, k: Tensor, beta: Tensor) -> Tensor:
    """Replaces the columns' part along k by 1 − β times itself: x − βk̂(k̂ᵀx), k̂ = k/‖k‖.

    β is the reflection strength: 0 keeps, 1 erases, 2 reflects. Orthogonal only at 0 and 2; its norm is
    max(1, |1 − β|).

    Args:
        x: ``[..., n, d]``, d columns of length n, any floating dtype.
        k: ``[..., n]``, any finite values, not necessarily normalised; the identity where it is 0.
        beta: ``[...]``. Leading axes broadcast.

    Returns:
        ``[..., n, d]`` in the dtype of ``x``; computed in float32 at least.

    Raises:
        ValueError: where the stream axes of x and k differ.

    Source:
        Deep delta learning, arXiv:2601.00417.
    """
    columns, direction = _prepare(x, k)
    change = working(beta).unsqueeze(-1) * along(direction, columns)
    return (columns - outer(direction, change, columns.dtype)).to(x.dtype)


def _prepare(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    if x.shape[-2] != k.shape[-1]:
        raise ValueError(f"x [..., n, d] and k [..., n] must share n, got {x.shape[-2]} and {k.shape[-1]}")
    direction, _ = unit(wide(k))
    return working(x), direction
