"""JPmHC: an approximately orthogonal matrix on sliced streams, by two steps of a fixed-point iteration."""

import torch
from torch import Tensor, nn

from app.layers.attention import zero_linear_
from app.layers.mixing.base import Mixer, check_streams, split
from app.maths.direction import working
from app.maths.orthogonal import cayley_iteration, matmul


class CayleyIteration(Mixer):
    """x⁺ = Y x + H_post(F(LN(mean over streams of H_pre x)) ⊗ 1), with streams of width d = D/n.

    Per token, [H̃_pre | H̃_post | H̃] = W·LN(x): H_pre is the softmax over the last axis, H_post over the
    one before, and Y the iteration of W̃ = H̃ − H̃ᵀ with α = 0.1. W starts at 0, where Y = I. Orthogonal
    for small H̃ only.

    Args:
        branch: F, at width ``width / streams``.
        width: D.
        streams: n, divides D.

    Shape: ``[B, T, D] → [B, T, D]``.

    Raises:
        ValueError: a number of streams that does not divide the width.

    Source: arXiv:2602.18308.
    """

    def __init__(self, branch: nn.Module, width: int, streams: int = 4) -> None:
        super().__init__(branch)
        check_streams(width, streams)
        self.streams = streams
        self.gather = nn.LayerNorm(width)
        self.fused = zero_linear_(nn.Linear(width, 3 * streams**2))
        self.norm = nn.LayerNorm(width // streams)

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """H_pre, H_post and Y, ``[B, T, n, n]`` each, in float32 at least."""
        n = self.streams
        pre, post, mix = torch.unflatten(working(self.fused(self.gather(x))), -1, (3, n, n)).unbind(-3)
        return torch.softmax(pre, -1), torch.softmax(post, -2), cayley_iteration(mix - mix.mT)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        pre, post, y = self.parameters_of(x)
        streams = split(x, self.streams)
        written = self.branch(self.norm(matmul(pre, streams).mean(-2)))
        # H_post applied to n copies of the branch's output: its row sums scale the copies.
        out: Tensor = matmul(y, streams) + post.sum(-1, keepdim=True) * written.unsqueeze(-2)
        return out.flatten(-2)

    def shortcut(self, x: Tensor) -> Tensor:
        """Y, ``[B, T, n, n]``."""
        return self.parameters_of(x)[2]
