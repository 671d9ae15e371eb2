"""Phasors and their bounding.

Layout: a state ``h`` of shape ``[..., D]`` is split-half: for bundles of ``b`` components it is ``b`` slices
of ``D/b``, and bundle ``i`` is made of the ``i``-th entry of every slice. ``b = 2`` is the phasor (first half
real, second half imaginary), ``b = 1`` a plain real number.

Dimension letters: D features, b components of a bundle, n = D/b bundles.
"""

import inspect
import math
from functools import reduce
from typing import Any

import torch
from torch import Tensor


def _slices(h: Tensor, bundle: int) -> Tensor:
    """Views ``[..., D]`` as ``[..., b, n]``."""
    features = h.shape[-1]
    if bundle < 1 or features % bundle:
        raise ValueError(f"bundle must be a positive divisor of the {features} features, got {bundle}")
    return h.view(*h.shape[:-1], bundle, features // bundle)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """Half types are computed in float32: the square of 256 is infinite in float16."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _norm(slices: Tensor) -> Tensor:
    """Euclidean norm over dimension −2, through ``hypot``: no square that could under- or overflow."""
    first, *rest = slices.unbind(-2)
    return reduce(torch.hypot, rest, first) if rest else first.abs()


class _RadialBound(torch.autograd.Function):
    """``h → (y, s)`` with s = 1 / max(1, r) per bundle and y = s·h.

    ``s`` is an output, not only a saved tensor, so that ``backward`` is itself differentiable. Its own
    derivative ds/dh = −[s < 1] s² y folds into the formula for y:

        ∂L/∂h = s·(g − [s < 1] y·(⟨y, g⟩ + s·g_s)).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor, bundle: int) -> tuple[Tensor, Tensor]:
        slices = _slices(h.to(_accumulator(h.dtype)), bundle)
        # Scaled by a power of two, the radius of b components near the largest float stays finite. Dividing
        # by it, instead of multiplying by s, keeps full precision where s is subnormal.
        scale = 2.0 ** -math.ceil(math.log2(bundle) / 2)
        limit = _norm(slices * scale).clamp(min=scale)
        y = (slices / limit.unsqueeze(-2)).mul_(scale).flatten(-2).to(h.dtype)
        return y, scale / limit

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.bundle = inputs[1]
        ctx.save_for_backward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        grad_y, grad_s = grads
        y, s = ctx.saved_tensors
        slices = _slices(y.to(s.dtype), ctx.bundle)
        s = s.unsqueeze(-2)
        g = torch.zeros_like(slices) if grad_y is None else _slices(grad_y.to(s.dtype), ctx.bundle)
        radial = (slices * g).sum(-2, keepdim=True)
        if grad_s is not None:
            radial = radial + s * grad_s.unsqueeze(-2)
        # [s < 1] as ⌈1 − s⌉: faster than a mask, and NaN where s is, so that no NaN is hidden.
        radial = radial * (1 - s).ceil()
        return (s * torch.addcmul(g, slices, radial, value=-1)).flatten(-2).to(y.dtype), None


# Function.apply inspects this signature at every call, a quarter of a small forward: look it up once.
_RadialBound.forward.__signature__ = inspect.signature(_RadialBound.forward)  # type: ignore[attr-defined]


def radial_bound(h: Tensor, bundle: int = 2) -> Tensor:
    """Projects every bundle onto the unit ball: v / max(1, ‖v‖₂).

    Inside the ball the Jacobian is I, outside it is (1/r)(I − u uᵀ) with u = v/r: the tangential gradient is
    kept, the radial one removed. The map is non-expansive. ``bundle=1`` is hard-tanh.

    Half types are computed in float32. Finite inputs up to the largest float give the exact direction, and
    the gradient is finite everywhere, 0 included. A bundle that holds NaN or ±inf gives a non-finite output,
    and no other bundle is touched.

    Args:
        h: ``[..., D]`` in split-half layout.
        bundle: components of a bundle, b; D must be a multiple of it.

    Returns:
        ``[..., D]``, of the same type.

    Raises:
        ValueError: b does not divide D.
    """
    y: Tensor = _RadialBound.apply(h, bundle)[0]
    return y


def radius(h: Tensor, bundle: int = 2) -> Tensor:
    """‖v‖₂ of every bundle, ``[..., D] → [..., D/b]``, float32 for half types. No derivative at 0."""
    return _norm(_slices(h.to(_accumulator(h.dtype)), bundle))


def phase(h: Tensor) -> Tensor:
    """Angle of every phasor in (−π, π], ``[..., D] → [..., D/2]``; 0 for the zero phasor."""
    real, imaginary = _slices(h, 2).unbind(-2)
    return torch.atan2(imaginary, real)


def unit_normalise(h: Tensor, bundle: int = 2, eps: float = 1e-6) -> Tensor:
    """Returns v / max(ε, ‖v‖₂): every bundle onto the unit sphere, without the ball's identity zone.

    It is ``radial_bound`` of v/ε, so its gradient, up to 1/ε near 0, is finite and exact everywhere.
    """
    return radial_bound(h.to(_accumulator(h.dtype)) / eps, bundle).to(h.dtype)


def mod_relu(h: Tensor, offset: Tensor) -> Tensor:
    """ReLU(|z| + c)·z/|z| per phasor (arXiv:1511.06464): the phase is kept, the radius rectified.

    Args:
        h: ``[..., D]`` in split-half layout.
        offset: c, ``[D/2]``. At 0 the map is the identity.
    """
    z = _slices(h.to(_accumulator(h.dtype)), 2)
    # The radius is kept away from 0, where its derivative and z/|z| do not exist.
    r = z.square().sum(-2, keepdim=True).clamp(min=1e-12).sqrt()
    return (z * (torch.relu(r + offset) / r)).flatten(-2).to(h.dtype)
