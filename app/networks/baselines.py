"""What a Z-Plane network is measured against: same depth and width, another activation, its own start.

All share one trunk, x → φ(encoder) → ``depth`` layers φ(W h + c) → head, and one signature; a class is an
activation and a start. Starts are orthogonal with zero bias; the encoder keeps unit variance per component.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from app.layers.activations import ModReLU, ScaledLeakyReLU, UnitMeanSquare, UnitNormalise
from app.layers.dense import DenseLayer, ResidualLayer
from app.layers.linear import ComplexLinear, orthogonal_linear_, retract_, unit_variance_gain
from app.maths.tat import leaky_slope
from app.networks.checks import check_even, check_sizes

Map = nn.Linear | ComplexLinear


def orthogonal_map(features_in: int, features_out: int, gain: float = 1.0) -> nn.Linear:
    """A new real map, orthogonal times ``gain``, zero bias."""
    return orthogonal_linear_(nn.Linear(features_in, features_out), gain)


class LayeredMLP(nn.Module):
    """The trunk, of any layer: x → encoder → ``depth`` layers → head.

    Args:
        input_shape: of one sample; it is flattened.
        num_outputs: classes, or output components.
        layer: makes a layer, activation and start included, from (features_in, features_out).
        depth: hidden layers between encoder and head.
        width: features of the state.
        added_inputs: features that the encoder reads beside those of the sample.

    Shape: ``[B, *input_shape] → [B, num_outputs]``.

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        layer: Callable[[int, int], nn.Module],
        depth: int = 100,
        width: int = 128,
        added_inputs: int = 0,
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        features = math.prod(input_shape) + added_inputs
        self.encoder = orthogonal_map(features, width, unit_variance_gain(features, width))
        self.layers = nn.ModuleList(layer(width, width) for _ in range(depth))
        self.head = orthogonal_map(width, num_outputs)

    def encode(self, x: Tensor) -> Tensor:
        """Returns the first state."""
        state: Tensor = self.encoder(x.flatten(1))
        return state

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        h = self.encode(x)
        for layer in self.layers:
            h = layer(h)
        prediction: Tensor = self.head(h)
        return prediction


class DeepMLP(LayeredMLP):
    """x → φ(encoder) → ``depth`` layers φ(W h + c) → head.

    Args:
        input_shape, num_outputs, depth, width, added_inputs: as in ``LayeredMLP``.
        activation: makes φ, anew for every layer.
        hidden_map: makes an initialised map from (features_in, features_out).
        prepare: maps flat inputs ``[B, n]`` to what the encoder reads.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int,
        width: int,
        activation: Callable[[], nn.Module],
        hidden_map: Callable[[int, int], Map] = orthogonal_map,
        prepare: nn.Module | None = None,
        added_inputs: int = 0,
    ) -> None:
        def layer(features_in: int, features_out: int) -> nn.Module:
            return DenseLayer(hidden_map(features_in, features_out), activation())

        super().__init__(input_shape, num_outputs, layer, depth, width, added_inputs)
        self.prepare = nn.Identity() if prepare is None else prepare
        self.activation = activation()

    def encode(self, x: Tensor) -> Tensor:
        """Returns the first state, φ(encoder)."""
        state: Tensor = self.activation(self.encoder(self.prepare(x.flatten(1))))
        return state


class HardTanhMLP(DeepMLP):
    """Hard-tanh, gain 1: radial bounding of single components."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, nn.Hardtanh)


class TanhMLP(DeepMLP):
    """Tanh, gain 1 (dynamical isometry, arXiv:1711.04735)."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, nn.Tanh)


class ReLUMLP(DeepMLP):
    """ReLU, gain √2, which makes good for the half that it sets to zero."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        he = partial(orthogonal_map, gain=math.sqrt(2))
        super().__init__(input_shape, num_outputs, depth, width, nn.ReLU, he)


class ShallowReLUMLP(ReLUMLP):
    """ReLU at the depth where it trains best: what depth has to beat."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 3, width: int = 128
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width)


class LinearMLP(DeepMLP):
    """No activation, gain 1: how far a product of orthogonal maps gets alone."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, nn.Identity)


class LayerNormReLUMLP(DeepMLP):
    """ReLU(LayerNorm(W h + c)), gain √2, no residual."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        he = partial(orthogonal_map, gain=math.sqrt(2))
        super().__init__(input_shape, num_outputs, depth, width, partial(_layer_norm_relu, width), he)


class ResidualLayerNormReLUMLP(nn.Module):
    """h + W ReLU(LayerNorm(h)) + c, gain √2: what practice would use at this depth.

    x → encoder → ``depth`` residual layers → ReLU(LayerNorm) → head. Arguments and shapes as in ``DeepMLP``.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        features = math.prod(input_shape)
        self.encoder = orthogonal_map(features, width, unit_variance_gain(features, width))
        self.layers = nn.ModuleList(
            ResidualLayer(orthogonal_map(width, width, math.sqrt(2)), _layer_norm_relu(width))
            for _ in range(depth)
        )
        self.activation = _layer_norm_relu(width)
        self.head = orthogonal_map(width, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        h = self.encoder(x.flatten(1))
        for layer in self.layers:
            h = layer(h)
        prediction: Tensor = self.head(self.activation(h))
        return prediction


class UnitaryMLP(DeepMLP):
    """Strictly unitary complex maps and no bounding: the maps of a Z-Plane network without its nonlinearity.

    Two Björck iterations after each optimizer step keep every map unitary.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        check_even(width)
        super().__init__(input_shape, num_outputs, depth, width, nn.Identity, ComplexLinear)

    def constrain(self) -> None:
        """Puts the hidden maps back onto the unitary group, in place."""
        retract_([layer.linear for layer in self.layers if isinstance(layer, DenseLayer)], steps=2)


class ModReLUMLP(DeepMLP):
    """Complex maps with modReLU, unitary at the start (arXiv:1511.06464)."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        check_even(width)
        super().__init__(input_shape, num_outputs, depth, width, partial(ModReLU, width), ComplexLinear)


class UnitNormaliseMLP(DeepMLP):
    """v/‖v‖ per phasor, gain 1: radial bounding without its identity zone."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        check_even(width)
        super().__init__(input_shape, num_outputs, depth, width, UnitNormalise)


class TailoredLeakyReLUMLP(DeepMLP):
    """Leaky ReLU with slope and scale tailored to the depth (TAT, arXiv:2203.08120).

    The strongest known start without shortcut or normalisation.
    Inputs get a constant 1 and are rescaled to mean square 1.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 100, width: int = 128
    ) -> None:
        check_sizes(input_shape, num_outputs, depth, width)
        # The encoder's activation is one of the chain.
        activation = partial(ScaledLeakyReLU, leaky_slope(depth + 1))
        super().__init__(
            input_shape, num_outputs, depth, width, activation, prepare=UnitMeanSquare(), added_inputs=1
        )


def _layer_norm_relu(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.ReLU())
