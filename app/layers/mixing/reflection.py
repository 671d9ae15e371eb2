"""Reflection alone: E∆ with its gate fixed at 0."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from app.layers.mixing.base import OPERATOR_METRICS, Mixer
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.operators import OperatorMixer
from app.maths.orthogonal import householder_reflect


class Reflection(OperatorMixer[Tensor]):
    """G = H X, H = I − 2kkᵀ/(kᵀk): always flips exactly one direction of the stream axis.

    Args:
        branch: F, at width ``width``.
        width: D.
        streams: n, divides D.
        hidden: hidden units of the fused map; D by default.
        source: where the parameters are read: ``Token()`` (default) or ``PrefixMean()``.

    Source: an ablation of arXiv:2605.06729.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **Mixer.METRICS,
        "reflection_orthogonality": OPERATOR_METRICS["reflection_orthogonality"],
    }

    def __init__(
        self,
        branch: nn.Module,
        width: int,
        streams: int = 4,
        hidden: int | None = None,
        source: nn.Module | None = None,
    ) -> None:
        fused = FusedMap(width, width if hidden is None else hidden, (streams,))
        super().__init__(branch, width, fused, streams, source)

    def parameters_of(self, x: Tensor) -> Tensor:
        """The direction k ``[B, T, n]``."""
        (k,) = self.fused(self.source(x))
        direction: Tensor = k
        return direction

    def operate(self, streams: Tensor, parameters: Tensor) -> Tensor:
        """Reflects."""
        return householder_reflect(streams, parameters)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        found = super().diagnostics(*inputs)
        return {**found, "reflection_orthogonality": found["orthogonality"]}
