"""A fully connected layer that can say how it is doing, with or without a shortcut."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from app.layers.linear import ComplexLinear, stacked
from app.maths import representation
from app.maths.bjorck import spectral_norm_bound


class DenseLayer(nn.Module):
    """h ↦ φ(W h + c).

    Args:
        linear: the map, initialised.
        activation: φ, any module that keeps the shape.

    Shape: ``[..., features_in] → [..., features_out]``.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "rms": "root mean square of the output; healthy .1 to 10 and level over depth; "
        "drifting over depth: the start's gain does not suit the activation",
        "pairwise_cosine": "mean cosine between two samples' outputs; healthy below .9; "
        "towards 1: the layer no longer tells inputs apart",
        "participation_ratio": "directions in use, 1 to width, of the outputs' covariance; healthy above 3; "
        "towards 1: collapse, lower the learning rate or use warm-up",
        "constant_fraction": "share of units whose output does not depend on the sample: dead or saturated; "
        "healthy below .2; rising: lower the learning rate",
        "spectral_norm": "largest singular value of the map; healthy: near the start's gain; "
        "growing: gradients explode over depth",
    }

    def __init__(self, linear: nn.Linear | ComplexLinear, activation: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation

    def forward(self, h: Tensor) -> Tensor:
        """Returns the activations."""
        output: Tensor = self.activation(self.linear(h))
        return output

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the states ``[..., features_in]`` just received: 0-d, named as in ``METRICS``."""
        (h,) = inputs
        y = self.forward(h)  # not a call: hooks are for the training's own passes
        return {
            "rms": representation.rms(y),
            "pairwise_cosine": representation.pairwise_cosine(y),
            "participation_ratio": representation.participation_ratio(y),
            "constant_fraction": representation.constant_fraction(y),
            "spectral_norm": spectral_norm_bound(stacked([self.linear]))[0],
        }


class ResidualLayer(DenseLayer):
    """h ↦ h + W φ(h) + c, for φ with its normalisation first: the shortcut itself is never touched."""

    def forward(self, h: Tensor) -> Tensor:
        """Returns the state plus the branch."""
        branch: Tensor = self.linear(self.activation(h))
        return h + branch
