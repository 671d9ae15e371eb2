"""Z-Plane networks: deep, without residual, without normalisation."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from app.layers.linear import ComplexLinear, orthogonal_linear_, retract_, stacked, unit_variance_gain
from app.layers.phasor import Mixing, RadialBound, ZPlaneLinear
from app.maths.bjorck import spectral_norm
from app.networks.checks import check_sizes


class ZPlaneMLP(nn.Module):
    """x → bound(encoder) → ``depth`` Z-Plane layers → head.

    The encoder is a real orthogonal map, scaled so that inputs of unit variance per component start at an
    RMS radius of 1. Biases start at zero.

    Args:
        input_shape: of one sample; it is flattened.
        num_outputs: classes, or output components.
        depth: hidden Z-Plane layers.
        width: D, real components of the state; a multiple of ``bundle``, even for complex mixing.
        mixing: of the hidden maps, see ``ZPlaneLinear``.
        bundle: components of a bundle; 2 is the phasor, 1 is hard-tanh.
        gain: of the hidden maps at the start; 1 is the right one, others are for study.

    Shape: ``[B, *input_shape] → [B, num_outputs]``.

    Raises:
        ValueError: a size that is not positive, or the rules of ``ZPlaneLinear``.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 100,
        width: int = 128,
        mixing: Mixing = "real",
        bundle: int = 2,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        if bundle < 1 or width % bundle:
            raise ValueError(f"width must be a multiple of bundle {bundle}, got {width}")
        if mixing == "complex" and width % 2:
            raise ValueError(f"width must be even for complex mixing, got {width}")
        features = math.prod(input_shape)
        encoder_gain = unit_variance_gain(features, width) / math.sqrt(bundle)
        self.encoder = orthogonal_linear_(nn.Linear(features, width), encoder_gain)
        self.bound = RadialBound(bundle)
        self.layers = nn.ModuleList(ZPlaneLinear(width, width, mixing, bundle, gain) for _ in range(depth))
        self.head = orthogonal_linear_(nn.Linear(width, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        h = self.bound(self.encoder(x.flatten(1)))
        for layer in self.layers:
            h = layer(h)
        prediction: Tensor = self.head(h)
        return prediction


class RetractedZPlaneMLP(ZPlaneMLP):
    """A Z-Plane network whose hidden maps are kept orthogonal (unitary) after every optimizer step.

    One Björck step over all layers at once brings every singular value back to 1 and none above it. The
    layers are then 1-Lipschitz: neither weights nor gradients can run away over depth. Encoder and head stay
    free.

    Args:
        steps: Björck iterations a step.
        input_shape, num_outputs, depth, width, mixing, bundle: as in ``ZPlaneMLP``; the gain is 1.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 100,
        width: int = 128,
        mixing: Mixing = "complex",
        bundle: int = 2,
        steps: int = 1,
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, mixing, bundle)
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.steps = steps

    def _maps(self) -> list[nn.Linear | ComplexLinear]:
        return [layer.linear for layer in self.layers if isinstance(layer, ZPlaneLinear)]

    def constrain(self) -> None:
        """One retraction of all hidden maps, in place: to be called after every optimizer step."""
        retract_(self._maps(), self.steps)

    @torch.no_grad()
    def lipschitz_bound(self) -> Tensor:
        """Product of the spectral norms of encoder, hidden maps and head: an upper bound, 0-d, float64.

        The bounding is non-expansive, so nothing else enters. Norms are computed in float64; the margin of
        1e-6 covers their rounding many times over.
        """
        ends = spectral_norm(self.encoder.weight) * spectral_norm(self.head.weight)
        return spectral_norm(stacked(self._maps())).prod() * ends * (1 + 1e-6)


class CertifiedZPlaneMLP(RetractedZPlaneMLP):
    """A Z-Plane network of which encoder and head are retracted, too: certified ``encoder_gain``-Lipschitz.

    Args:
        encoder_gain: the spectral norm at which the encoder is held. A smaller one bounds fewer phasors and
            lowers the Lipschitz constant with the margins; a larger one does the reverse.
        input_shape, num_outputs, depth, width, mixing, bundle, steps: as in ``RetractedZPlaneMLP``.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 100,
        width: int = 128,
        mixing: Mixing = "complex",
        bundle: int = 2,
        steps: int = 1,
        encoder_gain: float = 1.0,
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, mixing, bundle, steps)
        if encoder_gain <= 0:
            raise ValueError(f"encoder_gain must be positive, got {encoder_gain}")
        self.encoder_gain = encoder_gain
        orthogonal_linear_(self.encoder, encoder_gain)

    def constrain(self) -> None:
        """Retracts hidden maps, encoder and head, in place."""
        super().constrain()
        retract_([self.encoder], self.steps, self.encoder_gain)
        retract_([self.head], self.steps)
