"""The plain residual connection."""

import torch
from torch import Tensor, nn

from app.layers.mixing.base import Mixer


class Additive(Mixer):
    """x⁺ = x + F(LN x).

    Args:
        branch: F, at width ``width``.
        width: D.

    Shape: ``[B, T, D] → [B, T, D]``.
    """

    def __init__(self, branch: nn.Module, width: int) -> None:
        super().__init__(branch)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        out: Tensor = x + self.branch(self.norm(x))
        return out

    def shortcut(self, x: Tensor) -> Tensor:
        """The identity, ``[B, T, 1, 1]``."""
        return torch.ones_like(x[..., :1, None])
