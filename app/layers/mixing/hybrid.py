"""E∆: a gate blends a rotation and a reflection."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.layers.mixing.base import HISTOGRAM, OPERATOR_METRICS, Mixer
from app.layers.mixing.cayley import ROTATION_METRICS, rotation_diagnostics
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.operators import OperatorMixer
from app.maths.orthogonal import cayley_rotate, householder_reflect, orthogonality_error
from app.maths.representation import thin

GATE_METRICS: Mapping[str, str] = {
    "gamma_mean": "mean gate, 1 is the rotation, 0 the reflection; healthy near either; stuck at ½: the "
    "penalty has no gradient there, start with another gate_bias",
    "gamma_std": "spread of the gate; healthy above .05, or any where the mean is near 0 or 1; near 0 with a "
    "mean near ½: the gate does not choose, start with another gate_bias",
    "gamma_collapsed": "share of gates below .05 or above .95; healthy towards 1 late in training; 0 at "
    "the end: the blend is not orthogonal, raise the penalty or bias the gate",
    "gamma": "distribution of the gate; healthy late in training: at 0 and 1; a single peak at ½: as for its "
    "mean",
    "gate_penalty": "the term 4γ(1−γ), times its weight; healthy falling towards 0; level: raise its weight",
    **OPERATOR_METRICS,
}


class Hybrid(NamedTuple):
    """Plane ``u, v`` and normal ``k [B, T, n]``, scale ``beta`` and gate ``gamma [B, T]``."""

    u: Tensor
    v: Tensor
    k: Tensor
    beta: Tensor
    gamma: Tensor


class CayleyHouseholder(OperatorMixer[Hybrid]):
    """G = γ·Q X + (1 − γ)·H X: the rotation of ``Cayley`` and the reflection of ``Reflection``, blended.

    Orthogonal only at γ ∈ {0, 1}, whence the penalty λ·mean(4γ(1 − γ)). Its gradient vanishes at γ = ½,
    where the gate starts unless it is biased, and where G ≈ I − k̂k̂ᵀ loses a direction at every step.

    Args:
        branch: F, at width ``width``.
        width: D.
        streams: n, divides D.
        hidden: hidden units of the fused map; D by default.
        source: where the parameters are read: ``Token()`` (default) or ``PrefixMean()``.
        gate_bias: b in γ = σ(w·h + b) at the start, where w = 0: above 0 towards the rotation.
        penalty_weight: λ, at least 0.

    Raises:
        ValueError: a negative λ, or a number of streams that does not divide the width.

    Source: arXiv:2605.06729; per token, the start of H_pre, H_post and of the parameters is ours.
    """

    METRICS: ClassVar[Mapping[str, str]] = {**Mixer.METRICS, **ROTATION_METRICS, **GATE_METRICS}

    def __init__(
        self,
        branch: nn.Module,
        width: int,
        streams: int = 4,
        hidden: int | None = None,
        source: nn.Module | None = None,
        gate_bias: float = 0.0,
        penalty_weight: float = 0.1,
    ) -> None:
        if penalty_weight < 0:
            raise ValueError(f"penalty_weight must not be negative, got {penalty_weight}")
        sizes = (streams, streams, streams, 1, 1)
        fused = FusedMap(width, width if hidden is None else hidden, sizes, silent=(1, 3, 4))
        super().__init__(branch, width, fused, streams, source)
        self.penalty_weight = penalty_weight
        with torch.no_grad():
            self.fused.output.bias[-1] = gate_bias

    def parameters_of(self, x: Tensor) -> Hybrid:
        """Plane, normal, scale and gate."""
        u, v, k, beta, gate = self.fused(self.source(x))
        return Hybrid(u, v, k, F.softplus(beta.squeeze(-1)), torch.sigmoid(gate.squeeze(-1)))

    def operate(self, streams: Tensor, parameters: Hybrid) -> Tensor:
        """Blends."""
        u, v, k, beta, gamma = parameters
        gate = gamma.to(streams.dtype)[..., None, None]
        return gate * cayley_rotate(streams, u, v, beta) + (1 - gate) * householder_reflect(streams, k)

    def penalty(self, x: Tensor) -> Tensor:
        """λ·mean(4γ(1 − γ)), 0-d."""
        return self.penalty_of(self.parameters_of(x).gamma)

    def penalty_of(self, gamma: Tensor) -> Tensor:
        """The same from the gates."""
        return self.penalty_weight * (4 * gamma * (1 - gamma)).float().mean()

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        parameters = self.parameters_of(x)
        penalty = self.penalty_of(parameters.gamma)
        return {**super().diagnostics(x), **hybrid_diagnostics(self.basis(x), parameters, penalty)}


def hybrid_diagnostics(basis: Tensor, parameters: Hybrid, penalty: Tensor) -> Mapping[str, Tensor]:
    """What ``ROTATION_METRICS`` and ``GATE_METRICS`` name, from the unit vectors of the axis ``[n, n]``."""
    u, v, k, beta, gamma = parameters
    return {
        **rotation_diagnostics(u, v, beta),
        "gamma_mean": gamma.mean(),
        "gamma_std": gamma.std(correction=0),
        "gamma_collapsed": ((gamma < 0.05) | (gamma > 0.95)).float().mean(),
        "gamma": thin(gamma.flatten(), HISTOGRAM),
        "gate_penalty": penalty,
        "rotation_orthogonality": orthogonality_error(cayley_rotate(basis, u, v, beta)).amax(),
        "reflection_orthogonality": orthogonality_error(householder_reflect(basis, k)).amax(),
    }
