"""Two reflections in a row: every rotation of one plane, π included, without a gate."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from app.layers.mixing.base import HISTOGRAM, OPERATOR_METRICS, Mixer
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.operators import OperatorMixer
from app.maths.direction import unit, wide
from app.maths.orthogonal import householder_reflect
from app.maths.representation import thin


class Normals(NamedTuple):
    """The normals of the first and the second reflection, ``[B, T, n]``."""

    first: Tensor
    second: Tensor


class TwoReflections(OperatorMixer[Normals]):
    """G = H(k₂)H(k₁) X: turns the plane of the two normals by twice their angle, and keeps the rest.

    k₂ = k₁ + w with w = 0 at the start, where G is the identity and its gradient is not zero. A turn by π, at
    k₁ ⟂ k₂, is a regular point.

    Args:
        branch: F, at width ``width``.
        width: D.
        streams: n, divides D.
        hidden: hidden units of the fused map; D by default.
        source: where the parameters are read: ``Token()`` (default) or ``PrefixMean()``.

    Source: the idea of arXiv:2502.10297 as a residual mixer, with both strengths at 2.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **Mixer.METRICS,
        "angle_mean": "mean angle of the rotation in radians, 0 to π; healthy above .05; stuck near 0: "
        "nothing rotates, raise the learning rate",
        "angle": "distribution of the angle over tokens, 0 to π; healthy: spread; at 0 alone: nothing "
        "rotates",
        "rotation_orthogonality": OPERATOR_METRICS["rotation_orthogonality"],
    }

    def __init__(
        self,
        branch: nn.Module,
        width: int,
        streams: int = 4,
        hidden: int | None = None,
        source: nn.Module | None = None,
    ) -> None:
        fused = FusedMap(width, width if hidden is None else hidden, (streams, streams), silent=(1,))
        super().__init__(branch, width, fused, streams, source)

    def parameters_of(self, x: Tensor) -> Normals:
        """Both normals, not normalised."""
        first, change = self.fused(self.source(x))
        return Normals(first, first + change)

    def operate(self, streams: Tensor, parameters: Normals) -> Tensor:
        """Reflects twice."""
        return householder_reflect(householder_reflect(streams, parameters.first), parameters.second)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        first, second = (unit(wide(k))[0] for k in self.parameters_of(x))
        half = 2 * torch.asin(((first - second).norm(dim=-1) / 2).clamp(max=1))
        angle = (2 * torch.minimum(half, torch.pi - half)).to(
            x.dtype
        )  # a normal and its negative are the same
        found = super().diagnostics(x)
        return {
            **found,
            "angle_mean": angle.mean(),
            "angle": thin(angle.flatten(), HISTOGRAM),
            "rotation_orthogonality": found["orthogonality"],
        }
