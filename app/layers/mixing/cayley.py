"""Rotation alone: E∆ with its gate fixed at 1."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.layers.mixing.base import HISTOGRAM, OPERATOR_METRICS, Mixer
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.operators import OperatorMixer
from app.maths.orthogonal import cayley_angle, cayley_rotate
from app.maths.representation import thin

ROTATION_METRICS: Mapping[str, str] = {
    "beta_mean": "mean rotation scale, .69 at the start; healthy .1 to 10; growing without end: the task "
    "wants a turn by π, which no rotation of this kind reaches, use two reflections",
    "angle_mean": "mean |angle| of the rotation in radians, 0 to π; healthy above .05; stuck near 0: nothing "
    "rotates, near π: the rotation imitates a reflection",
    "angle": "distribution of the angle over tokens, −π to π; healthy: spread; at 0 alone: nothing rotates",
}


class Rotation(NamedTuple):
    """Plane ``u, v [B, T, n]`` and scale ``beta [B, T]``."""

    u: Tensor
    v: Tensor
    beta: Tensor


class Cayley(OperatorMixer[Rotation]):
    """G = Q X, Q = (I + βA/2)⁻¹(I − βA/2), A = u vᵀ − v uᵀ.

    v starts at zero, so that Q starts as the identity; β = softplus(·) starts at 0.693.

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
        **ROTATION_METRICS,
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
        fused = FusedMap(width, width if hidden is None else hidden, (streams, streams, 1), silent=(1, 2))
        super().__init__(branch, width, fused, streams, source)

    def parameters_of(self, x: Tensor) -> Rotation:
        """Plane and scale."""
        u, v, beta = self.fused(self.source(x))
        return Rotation(u, v, F.softplus(beta.squeeze(-1)))

    def operate(self, streams: Tensor, parameters: Rotation) -> Tensor:
        """Rotates."""
        return cayley_rotate(streams, *parameters)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        found = super().diagnostics(x)
        operator = {"rotation_orthogonality": found["orthogonality"]}
        return {**found, **rotation_diagnostics(*self.parameters_of(x)), **operator}


def rotation_diagnostics(u: Tensor, v: Tensor, beta: Tensor) -> Mapping[str, Tensor]:
    """What ``ROTATION_METRICS`` names."""
    angle = cayley_angle(u, v, beta)
    return {
        "beta_mean": beta.mean(),
        "angle_mean": angle.abs().mean(),
        "angle": thin(angle.flatten(), HISTOGRAM),
    }
