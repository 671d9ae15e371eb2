"""Projected gradient ascent in an ℓ₂ ball: what a certificate has to withstand."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def projected_gradient(
    predict: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    radius: Tensor | float,
    steps: int = 40,
    step_size: float = 0.25,
) -> Tensor:
    """Returns inputs near ``x`` that the network is meant to get wrong.

    Starting from δ = 0, ``steps`` times δ ← P(δ + α r g/‖g‖), g the gradient of the cross-entropy and P the
    projection onto ‖δ‖₂ ≤ r (arXiv:1706.06083). The inputs are not clipped to a valid range, which only
    makes the attack stronger.

    Args:
        predict: Maps ``[B, ...]`` to logits ``[B, C]``.
        x: Inputs ``[B, ...]``.
        y: Classes ``[B]`` to be driven away from.
        radius: r ≥ 0, one for all or ``[B]``, in units of ``x``.
        steps: Number of steps.
        step_size: α, in radii.

    Returns:
        ``[B, ...]``, detached.
    """
    shape = (-1, *[1] * (x.ndim - 1))
    limit = torch.as_tensor(radius, dtype=x.dtype, device=x.device).expand(len(x)).view(shape)
    shift = torch.zeros_like(x)
    for _ in range(steps):
        shift.requires_grad_(True)
        loss = cross_entropy(predict(x + shift), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, shift)
        with torch.no_grad():
            shift = shift + step_size * limit * gradient / norms(gradient)
            shift = shift * (limit / norms(shift)).clamp(max=1)
    return (x + shift).detach()


def norms(x: Tensor) -> Tensor:
    """ℓ₂ norm of each sample, kept broadcastable and away from 0."""
    lengths: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return lengths.clamp_min(1e-12).view(-1, *[1] * (x.ndim - 1))
