"""Causal self-attention and the feed-forward branch of a transformer block.

B: batch, T: time, D: width, H: heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalAttention(nn.Module):
    """Multi-head attention in which a position sees itself and its past.

    Args:
        width: D, divisible by ``heads``.
        heads: number of heads.
        depth: number of blocks of the network; sets the scale of the output projection.

    Shape: ``[B, T, D] → [B, T, D]``.

    Raises:
        ValueError: ``heads`` below 1, or a width that it does not divide.
    """

    def __init__(self, width: int, heads: int = 4, depth: int = 1) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads must be a divisor of the width {width}, got {heads}")
        self.heads = heads
        self.project = normal_linear_(nn.Linear(width, 3 * width, bias=False))
        self.output = normal_linear_(nn.Linear(width, width, bias=False), depth)

    def forward(self, x: Tensor) -> Tensor:
        """Returns softmax(QKᵀ/√d, causal)·V, projected."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return out


class FeedForward(nn.Module):
    """W₂·GELU(W₁x), without biases.

    Args:
        width: D.
        hidden: number of hidden units, at least 1.
        depth: number of blocks of the network; sets the scale of the output projection.

    Shape: ``[..., D] → [..., D]``.

    Raises:
        ValueError: ``hidden`` below 1.
    """

    def __init__(self, width: int, hidden: int, depth: int = 1) -> None:
        super().__init__()
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        self.input = normal_linear_(nn.Linear(width, hidden, bias=False))
        self.output = normal_linear_(nn.Linear(hidden, width, bias=False), depth)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the branch's output."""
        out: Tensor = self.output(F.gelu(self.input(x)))
        return out


def normal_linear_(linear: nn.Linear, depth: int | None = None) -> nn.Linear:
    """Draws weights from N(0, 0.02), or N(0, 0.02/√(2·depth)) for the outputs of residual branches."""
    std = 0.02 if depth is None else 0.02 / math.sqrt(2 * depth)
    nn.init.normal_(linear.weight, std=std)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def identity_linear_(linear: nn.Linear) -> nn.Linear:
    """Makes a square linear map without bias the identity."""
    nn.init.eye_(linear.weight)
    return linear


def zero_linear_(linear: nn.Linear) -> nn.Linear:
    """Sets weights, and biases where there are any, to zero."""
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.zero_()
    return linear
