"""The Z-Plane layer: a linear map followed by radial bounding."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from app.layers.linear import ComplexLinear, orthogonal_linear_, stacked
from app.maths import representation
from app.maths.bjorck import spectral_norm_bound
from app.maths.phasor import radial_bound, radius

Mixing = Literal["real", "complex"]


class RadialBound(nn.Module):
    """v ↦ v / max(1, ‖v‖₂) per bundle of ``bundle`` components; 2 is the phasor, 1 is hard-tanh.

    Shape: ``[..., D] → [..., D]``, split-half, D a multiple of ``bundle``.

    Raises:
        ValueError: ``bundle`` below 1; at the call, one that does not divide D.
    """

    def __init__(self, bundle: int = 2) -> None:
        super().__init__()
        if bundle < 1:
            raise ValueError(f"bundle must be at least 1, got {bundle}")
        self.bundle = bundle

    def forward(self, h: Tensor) -> Tensor:
        """Returns the bounded state."""
        return radial_bound(h, self.bundle)

    def extra_repr(self) -> str:
        """Returns the bundle size."""
        return f"bundle={self.bundle}"


class ZPlaneLinear(nn.Module):
    """One Z-Plane layer: h ↦ bound(W h + c).

    Args:
        features_in, features_out: D before and after the map, split-half.
        mixing: "real", any W, orthogonal at the start; "complex", W = [[A, −B], [B, A]], unitary at the
            start: every phasor is turned and scaled as a complex number, with half the weights.
        bundle: components of a bundle; 2 is the phasor.
        gain: of the orthogonal or unitary start. 1 keeps gradients over depth (they fall off with its
            logarithm only); below 1 they vanish, above 1 they explode. The bias starts at zero.

    Shape: ``[..., features_in] → [..., features_out]``, every bundle in the unit ball.

    Raises:
        ValueError: an unknown mixing, a bundle that does not divide ``features_out``, odd features with
            complex mixing, a gain that is not positive.

    Source: arXiv:2606.15669; the start is ours.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "bounded_fraction": "share of phasors beyond radius 1 before bounding; healthy below .4; "
        "rising towards 1: lower the learning rate, or use retraction",
        "rms_radius": "root mean square radius before bounding; healthy .3 to 1; "
        "growing: weights grow, use retraction; towards 0: the gain is below 1",
        "radius": "distribution of the radii before bounding; healthy: most of it below 1; "
        "moving beyond: weights grow, use retraction",
        "phase_coherence": "how much all samples share one phase, 0 to 1; healthy below .5; "
        "towards 1: collapse, lower the learning rate or use warm-up",
        "pairwise_cosine": "mean cosine between two samples' states; healthy below .5; "
        "towards 1: collapse, the layer no longer tells inputs apart",
        "participation_ratio": "directions in use, 1 to width, of the states' covariance; healthy above 3; "
        "towards 1: collapse, or a start that is not orthogonal",
        "spectral_norm": "largest singular value of the map; healthy .9 to 1.2; "
        "growing: gradients explode over depth, use retraction",
        "phasors": "a sample of phasors after bounding, for the disc; healthy: spread over "
        "the disc; all on one ray or all on the circle: collapse",
    }

    _HISTOGRAM: ClassVar[int] = 1024
    _DISC: ClassVar[int] = 256

    def __init__(
        self, features_in: int, features_out: int, mixing: Mixing = "real", bundle: int = 2, gain: float = 1.0
    ) -> None:
        super().__init__()
        if mixing not in ("real", "complex"):
            raise ValueError(f'mixing must be "real" or "complex", got {mixing!r}')
        if gain <= 0:
            raise ValueError(f"gain must be positive, got {gain}")
        self.bound = RadialBound(bundle)
        if features_out < 1 or features_out % bundle:
            raise ValueError(
                f"features_out must be a positive multiple of bundle {bundle}, got {features_out}"
            )
        self.linear: nn.Linear | ComplexLinear
        if mixing == "complex":
            self.linear = ComplexLinear(features_in, features_out, gain)
        else:
            self.linear = orthogonal_linear_(nn.Linear(features_in, features_out), gain)

    def forward(self, h: Tensor) -> Tensor:
        """Returns the bounded state."""
        bounded: Tensor = self.bound(self.linear(h))
        return bounded

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the states ``[..., features_in]`` just received; names as in ``METRICS``.

        0-d: curves. ``radius``: 1-d, at most 1024 values. ``phasors``: 2-d ``[n, 2]``, at most 256 points,
        only where bundles are phasors. Samples are taken evenly, without a random number.
        """
        (h,) = inputs
        bundle = self.bound.bundle
        z = self.linear(h)
        y = radial_bound(z, bundle)
        found = {
            "bounded_fraction": representation.bounded_fraction(z, bundle),
            "rms_radius": representation.rms_radius(z, bundle),
            "phase_coherence": representation.phase_coherence(y, bundle),
            "pairwise_cosine": representation.pairwise_cosine(y),
            "participation_ratio": representation.participation_ratio(y),
            "spectral_norm": spectral_norm_bound(stacked([self.linear]))[0],
            "radius": representation.thin(radius(z, bundle).flatten(), self._HISTOGRAM),
        }
        if bundle == 2:
            points = torch.stack(y.flatten(0, -2).float().chunk(2, dim=-1), dim=-1).flatten(0, 1)
            found["phasors"] = representation.thin(points, self._DISC)
        return found
