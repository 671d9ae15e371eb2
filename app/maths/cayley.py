"""The Cayley rotation in the plane of two vectors: exact, without a solve, differentiable everywhere.

With A = u vᵀ − v uᵀ and s = β/2,

    Q = (I + sA)⁻¹(I − sA) = 2R − I,        R = (I + sA)⁻¹,

so everything follows from the resolvent R, which differs from the identity only in the plane of u and v. In
an orthonormal basis (e₁, e₂) of that plane A = a·J with a = ‖u∧v‖ and J = e₁e₂ᵀ − e₂e₁ᵀ, and with t = s·a

    R = I − (t²/(1+t²))·(e₁e₁ᵀ + e₂e₂ᵀ) − (t/(1+t²))·J.

The *value* uses that basis: it stays orthonormal when u and v are nearly parallel, where expressions in u
and v cancel. The *derivative* does not go through the basis, which is undefined at u = 0 and u ∥ v although
Q is smooth there. It follows from (I + sA)w = x by the implicit function theorem: with the adjoint z = Rᵀg,

    dL = zᵀdx − zᵀ d(sA) w,

whose only ingredients besides z and w are the four products u·w, v·w, u·z, v·z. They are taken from
coordinates in the basis as well: for a large t they are small differences of large numbers otherwise. The
backward pass calls the same function for z, so derivatives of every order exist and are exact.
"""

from typing import Any, cast

import torch
from torch import Tensor

from app.maths.direction import along, broadcast_shapes, outer, unit, wide, working


def cayley_rotate(x: Tensor, u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Rotates the columns of ``x`` by 2·arctan(½β‖u∧v‖) in the plane of u and v: Q x, O(n) a column.

    Q = (I + βA/2)⁻¹(I − βA/2) with A = u vᵀ − v uᵀ; det Q = 1, and Q never has the eigenvalue −1. It is the
    identity where u and v are parallel, one of them is zero, or β = 0. It turns u towards v for β > 0.

    Args:
        x: ``[..., n, d]``, d columns of length n, any floating dtype.
        u: ``[..., n]``, any finite values.
        v: ``[..., n]``, any finite values.
        beta: ``[...]``, the rotation scale, any finite value. Leading axes broadcast.

    Returns:
        ``[..., n, d]`` in the dtype of ``x``; computed in float32 at least. In float32 norms and inner
        products of columns are kept to 2e-6, for every finite input, and autocast and TF32 settings change
        nothing.

    Raises:
        ValueError: where the stream axes of x, u and v differ.

    Source:
        A. Cayley (1846); the operator of arXiv:2605.06729.
    """
    if not x.shape[-2] == u.shape[-1] == v.shape[-1]:
        sizes = f"{x.shape[-2]}, {u.shape[-1]}, {v.shape[-1]}"
        raise ValueError(f"x [..., n, d], u [..., n] and v [..., n] must share n, got {sizes}")
    batch = broadcast_shapes(x.shape[:-2], u.shape[:-1], v.shape[:-1], beta.shape)
    columns = working(x).expand(*batch, *x.shape[-2:])
    w, _, _ = _resolvent(
        columns,
        wide(u).expand(*batch, u.shape[-1]),
        wide(v).expand(*batch, v.shape[-1]),
        (wide(beta) / 2).expand(batch),
    )
    return (2 * w - columns).to(x.dtype)


def cayley_angle(u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The angle by which ``cayley_rotate`` turns, 2·arctan(½β‖u∧v‖) in [−π, π], shape ``[...]``."""
    _, _, _, wedge = _basis(wide(u), wide(v))
    return (2 * torch.arctan(wide(beta) / 2 * wedge)).to(u.dtype)


def _basis(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """An orthonormal basis of the plane of u and v, their coordinates (u₁, v₁, u₂, v₂) in it and ‖u∧v‖.

    Where the plane is undefined the missing basis vectors are arbitrary, and ‖u∧v‖ is exactly 0.
    """
    first, _ = unit(u)
    direction, length = unit(v)
    rest = direction
    for _ in range(2):  # "twice is enough": the second pass removes what rounding left of e₁ in the first
        rest = rest - (rest * first).sum(-1, keepdim=True) * first
    size = rest.square().sum(-1, keepdim=True).sqrt()
    # The remainder of exactly parallel vectors is rounding, and a huge β would turn it into a rotation.
    noise = size <= 4 * torch.finfo(u.dtype).eps
    second, _ = unit(rest)
    u1 = (u * first).sum(-1)
    v1 = (v * first).sum(-1)
    v2 = (size.masked_fill(noise, 0.0) * length).squeeze(-1)
    return first, second, (u1, v1, torch.zeros_like(u1), v2), u1 * v2


def _resolvent(x: Tensor, u: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solves (I + s(u vᵀ − v uᵀ))w = x; returns w and the products u·w and v·w. Leading axes are shared."""
    return cast("tuple[Tensor, Tensor, Tensor]", _Resolvent.apply(x, u, v, s))


def _resolve(x: Tensor, u: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second, (u1, v1, _, v2), wedge = _basis(u, v)
    t = (s * wedge).unsqueeze(-1)
    small = t.abs() <= 1
    q = torch.where(small, t, 1 / t.masked_fill(small, 1.0))  # t or its inverse: no square overflows
    most, least = 1 / (1 + q * q), q * q / (1 + q * q)
    kept, lost, turned = torch.where(small, most, least), torch.where(small, least, most), q * most
    c1, c2 = along(first, x).to(s.dtype), along(second, x).to(s.dtype)
    w1, w2 = kept * c1 - turned * c2, kept * c2 + turned * c1
    w = x - outer(first, lost * c1 + turned * c2, x.dtype) - outer(second, lost * c2 - turned * c1, x.dtype)
    return w, u1.unsqueeze(-1) * w1, v1.unsqueeze(-1) * w1 + v2.unsqueeze(-1) * w2


class _Resolvent(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, u: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _resolve(x, u, v, s)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, u, v, s = inputs
        ctx.set_materialize_grads(False)  # the products have gradients in second derivatives only
        ctx.save_for_backward(u, v, s, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        u, v, s, w, uw, vw = ctx.saved_tensors
        g, g_uw, g_vw = grads
        g = torch.zeros_like(w) if g is None else g
        if g_uw is not None:
            g = g + outer(u, g_uw, g.dtype)
        if g_vw is not None:
            g = g + outer(v, g_vw, g.dtype)
        z, uz, vz = _resolvent(g, u, v, -s) if torch.is_grad_enabled() else _resolve(g, u, v, -s)
        grad_u = _sum(s, w, vz, z, vw)
        grad_v = _sum(s, z, uw, w, uz)
        if g_uw is not None:
            grad_u = grad_u + (w * g_uw.unsqueeze(-2)).sum(-1)
        if g_vw is not None:
            grad_v = grad_v + (w * g_vw.unsqueeze(-2)).sum(-1)
        return z, grad_u, grad_v, (vz * uw - uz * vw).sum(-1)


def _sum(s: Tensor, a: Tensor, p: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """s·Σ (a·p − b·q) over the columns: a, b ``[..., n, d]``, and p, q ``[..., d]`` of any magnitude."""
    p, q = ((s.unsqueeze(-1) * product).to(a.dtype).unsqueeze(-2) for product in (p, q))
    return (a * p - b * q).sum(-1).to(s.dtype)
