"""Hyper-connections as first published: an unconstrained matrix, static up to a small dynamic part."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from app.layers.attention import zero_linear_
from app.layers.mixing.base import Mixer
from app.maths.direction import working
from app.maths.orthogonal import matmul


class Hyper(Mixer):
    """X⁺ = A_rᵀX + b F(LN(A_mᵀX)), where [A_m | A_r] = [e | I] + 0.01·tanh(norm(X)W) and b = 1 +
    0.01·tanh(·).

    e is the unit vector of stream (index mod n). W starts at 0; the static part and the scales 0.01 are
    trained.

    Args:
        branch: F, at width ``width``.
        width: C.
        index: which residual step this is, from 0.
        streams: n, at least 2.

    Shape: ``[B, T, n, C] → [B, T, n, C]``.

    Raises:
        ValueError: fewer than 2 streams.

    Source: arXiv:2409.19606.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"static"})

    def __init__(self, branch: nn.Module, width: int, index: int, streams: int = 4) -> None:
        super().__init__(branch)
        if streams < 2:
            raise ValueError(f"streams must be at least 2, got {streams}")
        self.sizes = [1, streams, 1]
        self.norm = nn.LayerNorm(width)
        self.gather = nn.LayerNorm(width)
        self.dynamic = zero_linear_(nn.Linear(width, streams + 2, bias=False))
        eye = torch.eye(streams)
        first = eye[:, index % streams, None]
        self.static = nn.Parameter(torch.cat((first, eye, torch.ones(streams, 1)), -1))
        self.scale = nn.Parameter(torch.full((3,), 0.01))

    def parameters_of(self, x: Tensor) -> tuple[Tensor, ...]:
        """A_m ``[B, T, n, 1]``, A_r ``[B, T, n, n]`` and b ``[B, T, n, 1]``, in float32 at least."""
        change = torch.split(torch.tanh(working(self.dynamic(self.gather(x)))), self.sizes, -1)
        static = torch.split(self.static, self.sizes, -1)
        return tuple(base + s * part for base, s, part in zip(static, self.scale, change, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        read, mix, write = self.parameters_of(x)
        written = self.branch(self.norm((read * x).sum(-2))).unsqueeze(-2)
        out: Tensor = matmul(mix.mT, x) + write * written
        return out

    def shortcut(self, x: Tensor) -> Tensor:
        """A_rᵀ, ``[B, T, n, n]``."""
        return self.parameters_of(x)[1].mT
