"""Sigma-Pi networks, and plain, bilinear and published ones beside them: the same trunk, another layer."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.layers import polyweave
from app.layers.bilinear import BilinearConv2d, BilinearLinear
from app.layers.sigma_pi import SigmaPiConv2d, SigmaPiConvBlock2d, SigmaPiLinear
from app.layers.sigma_pi_base import Branches, SigmaPiLayer
from app.networks.checks import check_sizes

BRANCHES = Branches._fields
MULTIPLICATIVE = ("product", "bilinear")


class StackedMLP(nn.Module):
    """The dense trunk: ``depth`` layers with ReLU in between; the last one is the head.

    Args:
        input_shape: of one sample; it is flattened.
        num_outputs: classes, or output components.
        depth: layers; 1 is a single one from inputs to outputs.
        width: features between layers.
        layer: makes a layer from (features_in, features_out).

    Shape: ``[B, *input_shape] → [B, num_outputs]``.

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int,
        width: int,
        layer: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        sizes = [math.prod(input_shape), *[width] * (depth - 1), num_outputs]
        self.layers = nn.ModuleList(map(layer, sizes[:-1], sizes[1:]))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        h = x.flatten(1)
        for depth, layer in enumerate(self.layers):
            h = layer(F.relu(h) if depth else h)
        return h


class SigmaPiMLP(StackedMLP):
    """Repaired Sigma-Pi layers. Arguments as in ``StackedMLP`` and ``SigmaPiLinear``."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 1,
        width: int = 64,
        bilinear_rank: int = 8,
        max_exponent: float = 2.0,
        center: bool = False,
    ) -> None:
        layer = partial(SigmaPiLinear, bilinear_rank=bilinear_rank, max_exponent=max_exponent, center=center)
        super().__init__(input_shape, num_outputs, depth, width, layer)

    @torch.no_grad()
    def ablated(self, x: Tensor) -> Mapping[str, Tensor]:
        """Predictions for x with a branch removed from every layer: see ``ablations``."""
        return {name: self._without(x, removed) for name, removed in ablations(self)}

    def _without(self, x: Tensor, removed: Collection[str]) -> Tensor:
        h = x.flatten(1)
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, SigmaPiLinear)  # this class makes no other
            h = layer.forward_without(F.relu(h) if depth else h, removed)
        return h


class PlainMLP(StackedMLP):
    """``nn.Linear`` in the place of the Sigma-Pi layers."""

    def __init__(self, input_shape: Sequence[int], num_outputs: int, depth: int = 1, width: int = 64) -> None:
        super().__init__(input_shape, num_outputs, depth, width, nn.Linear)


class BilinearMLP(StackedMLP):
    """Affine layers with ``rank`` products: Wx + b + A[(Ux) ⊙ (Vx)]."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 1, width: int = 64, rank: int = 8
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, partial(BilinearLinear, rank=rank))


class PolyWeaveMLP(StackedMLP):
    """The published dense layer. Arguments as in ``app.layers.polyweave.SigmaPiLinear``."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 1,
        width: int = 64,
        max_exponent: float = 0.5,
        signed_products: bool = False,
        center_product: bool = False,
    ) -> None:
        layer = partial(
            polyweave.SigmaPiLinear,
            max_exponent=max_exponent,
            signed_products=signed_products,
            center_product=center_product,
        )
        super().__init__(input_shape, num_outputs, depth, width, layer)


class TanhPolyWeaveMLP(StackedMLP):
    """The deprecated dense layer, from which the published recruitment figures come."""

    def __init__(self, input_shape: Sequence[int], num_outputs: int, depth: int = 1, width: int = 64) -> None:
        super().__init__(input_shape, num_outputs, depth, width, polyweave.TanhSigmaPiLinear)


class BlockCNN(nn.Module):
    """The convolutional trunk: ``depth`` blocks, each with 2×2 max pooling, then the mean and an affine head.

    Args:
        input_shape: (C, H, W) of one sample.
        num_outputs: classes, or output components.
        depth: blocks.
        width: channels of every block.
        block: makes a block from (channels_in, channels_out) that keeps height and width.

    Shape: ``[B, C, H, W] → [B, num_outputs]``.

    Raises:
        ValueError: a size that is not positive, inputs that are no images or too small for the pooling.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int,
        width: int,
        block: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        if len(input_shape) != 3 or min(input_shape[1:]) < 2**depth:
            raise ValueError(
                f"input_shape must be (C, H, W) with H, W at least {2**depth} for {depth} poolings, "
                f"got {tuple(input_shape)}"
            )
        channels = [input_shape[0], *[width] * depth]
        self.blocks = nn.ModuleList(map(block, channels[:-1], channels[1:]))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        for block in self.blocks:
            x = F.max_pool2d(block(x), 2)
        return self._head(x)

    def _head(self, x: Tensor) -> Tensor:
        prediction: Tensor = self.head(x.mean(dim=(2, 3)))
        return prediction


class SigmaPiCNN(BlockCNN):
    """Repaired 3×3 Sigma-Pi convolutions with batch normalisation and ReLU."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 3,
        width: int = 48,
        bilinear_rank: int = 8,
        max_exponent: float = 2.0,
        center: bool = False,
    ) -> None:
        def block(channels_in: int, channels_out: int) -> nn.Module:
            return SigmaPiConvBlock2d(
                SigmaPiConv2d(
                    channels_in,
                    channels_out,
                    3,
                    padding=1,
                    bilinear_rank=bilinear_rank,
                    max_exponent=max_exponent,
                    center=center,
                )
            )

        super().__init__(input_shape, num_outputs, depth, width, block)

    @torch.no_grad()
    def ablated(self, x: Tensor) -> Mapping[str, Tensor]:
        """Predictions for x with a branch removed from every layer: see ``ablations``.

        All of them, "none" too, with the batch's own normalisation statistics.
        """
        return {name: self._without(x, removed) for name, removed in ablations(self)}

    def _without(self, x: Tensor, removed: Collection[str]) -> Tensor:
        for block in self.blocks:
            assert isinstance(block, SigmaPiConvBlock2d)  # this class makes no other
            x = F.max_pool2d(block.forward_without(x, removed), 2)
        return self._head(x)


class PlainCNN(BlockCNN):
    """``nn.Conv2d`` in the place of the Sigma-Pi convolution."""

    def __init__(self, input_shape: Sequence[int], num_outputs: int, depth: int = 3, width: int = 48) -> None:
        def block(channels_in: int, channels_out: int) -> nn.Module:
            return _normalised(nn.Conv2d(channels_in, channels_out, 3, padding=1))

        super().__init__(input_shape, num_outputs, depth, width, block)


class BilinearCNN(BlockCNN):
    """Convolutions with ``rank`` products in the place of the Sigma-Pi convolution."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 3, width: int = 48, rank: int = 8
    ) -> None:
        def block(channels_in: int, channels_out: int) -> nn.Module:
            return _normalised(BilinearConv2d(channels_in, channels_out, 3, padding=1, rank=rank))

        super().__init__(input_shape, num_outputs, depth, width, block)


class PolyWeaveCNN(BlockCNN):
    """The published block behind a plain one: it cannot change the number of channels.

    Arguments as in ``app.layers.polyweave.ConvSigmaPi2d``.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 3,
        width: int = 48,
        max_exponent: float = 0.5,
        signed_products: bool = False,
        center_product: bool = False,
    ) -> None:
        def block(channels_in: int, channels_out: int) -> nn.Module:
            if channels_in != channels_out:
                return _normalised(nn.Conv2d(channels_in, channels_out, 3, padding=1))
            return polyweave.ConvSigmaPi2d(
                channels_in,
                max_exponent=max_exponent,
                signed_products=signed_products,
                center_product=center_product,
            )

        super().__init__(input_shape, num_outputs, depth, width, block)


def ablations(network: nn.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names and removed branches: none, each branch that the network has, and both multiplicative ones.

    Removed from every layer at once and replaced by its mean over the batch, since a constant is no
    contribution. How much a metric falls from "none" is the branch's effect. No state or flag is involved.
    """
    layers = [m for m in network.modules() if isinstance(m, SigmaPiLayer)]
    bilinear = any(layer.bilinear_rank for layer in layers)
    yield "none", ()
    for branch in BRANCHES if bilinear else BRANCHES[:-1]:
        yield branch, (branch,)
    if bilinear:
        yield "multiplicative", MULTIPLICATIVE


def _normalised(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU())
