"""What the mixers with an exact operator on sliced streams share: E∆, its two halves, and two reflections."""

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from app.layers.attention import identity_linear_
from app.layers.mixing.base import Mixer, check_streams, split
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.sources import Token

P = TypeVar("P")


class OperatorMixer(Mixer, Generic[P]):
    """x⁺ = G + H_post·F(H_pre·LN G), where G is an operator on the n streams that x is sliced into.

    H_pre and H_post, D × D, start as the identity. The operator's parameters come out of one fused map.

    Args:
        branch: F, at width ``width``.
        width: D.
        fused: gives the parameters from what ``source`` returns.
        streams: n, divides D.
        source: where the parameters are read: ``Token()`` (default) or ``PrefixMean()``.

    Shape: ``[B, T, D] → [B, T, D]``.

    Raises:
        ValueError: a number of streams that does not divide the width.
    """

    def __init__(
        self, branch: nn.Module, width: int, fused: FusedMap, streams: int, source: nn.Module | None
    ) -> None:
        super().__init__(branch)
        check_streams(width, streams)
        self.streams = streams
        self.source = Token() if source is None else source
        self.fused = fused
        self.norm = nn.LayerNorm(width)
        self.read = identity_linear_(nn.Linear(width, width, bias=False))
        self.write = identity_linear_(nn.Linear(width, width, bias=False))

    @abstractmethod
    def parameters_of(self, x: Tensor) -> P:
        """The operator's parameters for the state ``[B, T, D]``."""

    @abstractmethod
    def operate(self, streams: Tensor, parameters: P) -> Tensor:
        """Applies the operator on the stream axis: ``[..., n, d] → [..., n, d]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        g = self.operate(split(x, self.streams), self.parameters_of(x)).flatten(-2)
        out: Tensor = g + self.write(self.branch(self.read(self.norm(g))))
        return out

    def shortcut(self, x: Tensor) -> Tensor:
        """The operator's matrix, ``[B, T, n, n]``."""
        return self.operate(self.basis(x), self.parameters_of(x))

    def basis(self, x: Tensor) -> Tensor:
        """The unit vectors of the stream axis, ``[n, n]``: what an operator makes of them is its matrix."""
        return torch.eye(self.streams, device=x.device)
