"""Directions and lengths of vectors that may be zero, huge or tiny."""

import torch
from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """``tensor`` in float64, or in float32 on devices that lack it (Apple's MPS).

    For the few numbers that parametrise an operator, never for the stream it acts on: they cost nothing,
    and products of three float32 magnitudes overflow float32 long before they overflow float64.
    """
    return tensor.to(torch.float32 if tensor.device.type == "mps" else torch.float64)


def unit(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Splits a vector into direction and length along the last axis.

    Args:
        vector: ``[..., n]``, floating point, finite.

    Returns:
        The direction ``[..., n]``, of norm 1, or 0 where the vector is 0 (the derivative is finite there as
        well), and the length ``[..., 1]``. Neither over- nor underflows, because the largest entry is
        divided out first.
    """
    largest = vector.detach().abs().amax(-1, keepdim=True)
    zero = largest == 0
    scaled = vector / largest.masked_fill(zero, 1.0)
    norm = scaled.square().sum(-1, keepdim=True).masked_fill(zero, 1.0).sqrt()
    return scaled / norm, (norm * largest)


def along(direction: Tensor, x: Tensor) -> Tensor:
    """Coordinates ``[..., d]`` of the columns of ``x`` ``[..., n, d]`` along ``direction`` ``[..., n]``.

    A sum of products, not a matrix product: TF32 and autocast leave it alone.
    """
    return (direction.to(x.dtype).unsqueeze(-1) * x).sum(-2)


def outer(direction: Tensor, coordinates: Tensor, dtype: torch.dtype) -> Tensor:
    """Puts coordinates ``[..., d]`` back along a direction ``[..., n]``: ``[..., n, d]`` in ``dtype``."""
    return direction.to(dtype).unsqueeze(-1) * coordinates.to(dtype).unsqueeze(-2)


def working(x: Tensor) -> Tensor:
    """``x`` in the precision that operators compute in: its own, but float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    """The shape that all ``shapes`` broadcast to."""
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
