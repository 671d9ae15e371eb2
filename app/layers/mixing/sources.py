"""Where an operator reads its parameters from: the token itself, or the past as a whole. Both are causal."""

import torch
from torch import Tensor, nn


class Token(nn.Module):
    """The state at the position itself.

    Shape: ``[B, T, D] → [B, T, D]``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x``."""
        return x


class PrefixMean(nn.Module):
    """The mean over the position and everything before it.

    Shape: ``[B, T, D] → [B, T, D]``, summed in float32 at least.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns the running mean."""
        counts = torch.arange(1, x.shape[-2] + 1, device=x.device).unsqueeze(-1)
        return (x.cumsum(-2, dtype=torch.promote_types(x.dtype, torch.float32)) / counts).to(x.dtype)
