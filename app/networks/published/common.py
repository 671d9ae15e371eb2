"""What the published E∆ comparison has in common: trunk, branches and the start of weights.

Frozen: what was run, with its faults. Our own networks are in ``app.networks``.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from app.layers.attention import CausalAttention, FeedForward
from app.networks.checks import check_sizes

HEADS = 4


class Block(nn.Module):
    """Two residual steps; each returns the next state and its penalty."""

    def __init__(self, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the next state and the sum of both penalties, 0-d."""
        x, first = self.attention(x)
        x, second = self.feed_forward(x)
        return x, first + second


class Trunk(nn.Module):
    """Input map, learned positions for T + 1 vectors, blocks, LayerNorm, output map.

    Only the two maps have biases; LayerNorms and branches have none.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, width: int, blocks: Sequence[Block]
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, len(blocks), width)
        if len(input_shape) != 2:
            raise ValueError(f"input_shape must be (T, features), got {tuple(input_shape)}")
        time, features = input_shape
        self.input = nn.Linear(features, width)
        self.positions = nn.Parameter(torch.zeros(1, time + 1, width))
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm(width)
        self.output = nn.Linear(width, num_outputs)
        start_(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and the sum of all penalties, 0-d."""
        state = self.input(x) + self.positions[:, : x.shape[1]]
        penalty = x.new_zeros(())
        for block in self.blocks:
            state, added = block(state)
            penalty = penalty + added
        return self.output(self.norm(state)), penalty


def start_(trunk: Trunk) -> None:
    """Draws every linear map from N(0, 0.02), outputs of branches from N(0, 0.02/√(2L)); biases are zero."""
    for module in trunk.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(trunk.positions, std=0.02)
    for module in trunk.modules():
        if isinstance(module, (CausalAttention, FeedForward)):
            nn.init.normal_(module.output.weight, std=0.02 / math.sqrt(2 * len(trunk.blocks)))


def norm(width: int) -> nn.LayerNorm:
    """The LayerNorm before a branch and before the output map: a gain, no bias."""
    return nn.LayerNorm(width, bias=False)


def attention(width: int) -> CausalAttention:
    """The attention branch."""
    return CausalAttention(width, HEADS)


def feed_forward(width: int) -> FeedForward:
    """The feed-forward branch."""
    return FeedForward(width, 4 * width)


def small_mlp(width: int, hidden: int, outputs: int) -> nn.Sequential:
    """Linear, GELU, linear, with biases: gives one parameter of an operator."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, outputs))
