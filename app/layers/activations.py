"""Activations that torch does not have, for the baselines."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from app.maths.phasor import mod_relu, unit_normalise
from app.maths.tat import output_scale


class UnitNormalise(nn.Module):
    """v ↦ v/‖v‖₂ per phasor, everywhere: radial bounding without its identity zone.

    Shape: ``[..., D] → [..., D]``, split-half.
    """

    def forward(self, h: Tensor) -> Tensor:
        """Returns the phasors at radius 1."""
        return unit_normalise(h)


class ModReLU(nn.Module):
    """z ↦ ReLU(|z| + c)·z/|z| per phasor, with a learned offset c that starts at 0 (the identity).

    Args:
        features: D, even.

    Shape: ``[..., D] → [..., D]``, split-half. Source: arXiv:1511.06464.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        if features < 2 or features % 2:
            raise ValueError(f"features must be even and positive, got {features}")
        self.offset = nn.Parameter(torch.zeros(features // 2))

    def forward(self, h: Tensor) -> Tensor:
        """Returns the rectified phasors."""
        return mod_relu(h, self.offset)


class ScaledLeakyReLU(nn.Module):
    """s·LeakyReLU(h), with s = √(2/(1 + a²)) so that a standard normal keeps its mean square.

    Args:
        slope: a, on the negative side, in [0, 1].
    """

    def __init__(self, slope: float) -> None:
        super().__init__()
        if not 0 <= slope <= 1:
            raise ValueError(f"slope must be between 0 and 1, got {slope}")
        self.slope = slope
        self.scale = output_scale(slope)

    def forward(self, h: Tensor) -> Tensor:
        """Returns the activations."""
        return self.scale * functional.leaky_relu(h, self.slope)

    def extra_repr(self) -> str:
        """Returns the two constants."""
        return f"slope={self.slope:.4f}, scale={self.scale:.4f}"


class UnitMeanSquare(nn.Module):
    """Appends a 1 and rescales every sample to mean square 1: ``[..., D] → [..., D + 1]``.

    Tailored activations are exact only at this length; the 1 keeps a blank sample from having none.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns the longer, rescaled samples."""
        extended = functional.pad(x, (0, 1), value=1.0)
        return extended * extended.square().mean(-1, keepdim=True).rsqrt()
