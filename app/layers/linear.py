"""Linear maps that start orthogonal or unitary, and their initialisers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from app.maths.bjorck import bjorck

# Maps retracted at once: few enough for a processor's cache (1 MB at width 128), enough for an accelerator.
_GROUP = 16


def orthogonal_linear_(linear: nn.Linear, gain: float = 1.0) -> nn.Linear:
    """(Semi-)orthogonal weight times ``gain``, zero bias, in place; returns the layer."""
    nn.init.orthogonal_(linear.weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def unit_variance_gain(features_in: int, features_out: int) -> float:
    """Gain of a semi-orthogonal map that keeps unit variance per component: max(1, √(out/in)).

    A tall orthogonal map spreads the energy of its ``in`` inputs over ``out`` outputs; a wide one projects.
    """
    return math.sqrt(max(1.0, features_out / features_in))


@torch.no_grad()
def unitary_(weight: Tensor, gain: float = 1.0) -> Tensor:
    """(Semi-)unitary start, in place, for a complex matrix stored as ``[2, m, n]`` (real, imaginary).

    Q of a complex Gaussian's QR with R's phases taken out is distributed uniformly (Haar).
    """
    rows, columns = weight.shape[-2:]
    gaussian = torch.randn(max(rows, columns), min(rows, columns), dtype=torch.complex128)
    q, r = torch.linalg.qr(gaussian)
    q = q * torch.sgn(r.diagonal())
    q = gain * (q if rows >= columns else q.mH)
    weight.copy_(torch.stack((q.real, q.imag)))
    return weight


class ComplexLinear(nn.Module):
    """Complex-linear map in split-half layout: z ↦ (A + iB) z + c.

    Computed as one real product with [[A, −B], [B, A]], of which only A and B are stored: half the weights
    of a real map. Being real tensors they go through any optimizer, DDP and ``state_dict``.

    Args:
        features_in, features_out: real components, even: n = features/2 complex ones.
        gain: of the unitary start. The bias starts at zero.

    Shape: ``[..., features_in] → [..., features_out]``.

    Raises:
        ValueError: an odd or non-positive number of features.
    """

    def __init__(self, features_in: int, features_out: int, gain: float = 1.0) -> None:
        super().__init__()
        for name, value in (("features_in", features_in), ("features_out", features_out)):
            if value < 2 or value % 2:
                raise ValueError(f"{name} of a complex map must be even and positive, got {value}")
        self.features_in = features_in
        self.features_out = features_out
        self.weight = nn.Parameter(unitary_(torch.empty(2, features_out // 2, features_in // 2), gain))
        self.bias = nn.Parameter(torch.zeros(features_out))

    def matrix(self) -> Tensor:
        """The real matrix [[A, −B], [B, A]], ``[features_out, features_in]``."""
        real, imaginary = self.weight.unbind(0)
        return torch.cat((self.weight.flatten(0, 1), torch.cat((-imaginary, real))), dim=1)

    def forward(self, h: Tensor) -> Tensor:
        """Returns the mapped state."""
        return functional.linear(h, self.matrix(), self.bias)

    def extra_repr(self) -> str:
        """Returns the sizes."""
        return f"features_in={self.features_in}, features_out={self.features_out}"


def stacked(maps: Sequence[nn.Linear | ComplexLinear]) -> Tensor:
    """Weights of equally shaped maps in their own field: ``[L, m, n]``, complex where the maps are."""
    weights = torch.stack([linear.weight for linear in maps])
    return torch.complex(*weights.unbind(1)) if isinstance(maps[0], ComplexLinear) else weights


@torch.no_grad()
def retract_(maps: Sequence[nn.Linear | ComplexLinear], steps: int = 1, gain: float = 1.0) -> None:
    """Moves equally shaped maps towards ``gain`` times (semi-)orthogonal or unitary ones, in place.

    Afterwards no singular value is above ``gain``. See ``app.maths.bjorck.bjorck``.
    """
    for start in range(0, len(maps), _GROUP):
        group = maps[start : start + _GROUP]
        retracted = bjorck(stacked(group) / gain, steps) * gain
        if retracted.is_complex():
            retracted = torch.view_as_real(retracted).movedim(-1, 1)
        torch._foreach_copy_([linear.weight for linear in group], list(retracted.unbind(0)))
