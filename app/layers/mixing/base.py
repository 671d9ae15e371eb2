"""What all residual mixers share.

A residual step is x⁺ = M(x)·x + write(F(read(x))): a mixer owns the branch F (attention or feed-forward)
and decides what happens on the skip path. B: batch, T: time, D: width of the residual, n: streams, d: width
of a stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from app.maths.orthogonal import eigenvalues, log10_error, orthogonality_error

MixerFactory = Callable[[nn.Module, int], "Mixer"]
"""Makes the mixer around a branch; the second argument counts residual steps from 0."""


class Mixer(nn.Module, ABC):
    """One residual step around a branch.

    Args:
        branch: F, ``[B, T, width] → [B, T, width]``.

    Shape: the residual's state, ``[B, T, D]`` (or ``[B, T, n, D]`` where streams are expanded), to the same.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "orthogonality": "largest entry of |MᵀM − I| of the skip path's map as applied; healthy below 1e-5 "
        "for rotations and reflections; above .1: the residual shrinks or grows over depth",
        "orthogonality_log10": "log₁₀ of it; healthy below −5 for rotations, reflections; rising: as there",
        "eigenvalues": "eigenvalues of that map at some tokens; healthy: on the unit circle; inside it the "
        "residual forgets, outside it grows: bias the gate",
    }

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""

    @abstractmethod
    def shortcut(self, x: Tensor) -> Tensor:
        """The matrix M(x) ``[B, T, m, m]`` on the skip path.

        m is n where it mixes streams, D where it mixes features, 1 where it is a scalar.
        """

    def penalty(self, x: Tensor) -> Tensor:
        """What the step adds to the loss for the state ``x``, 0-d; zero unless there is a gate."""
        return x.new_zeros(())

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        return shortcut_diagnostics(self.shortcut(x))


def shortcut_diagnostics(matrix: Tensor) -> dict[str, Tensor]:
    """What ``Mixer.METRICS`` names, from the skip path's map ``[B, T, m, m]``."""
    error = orthogonality_error(matrix).amax()
    return {
        "orthogonality": error,
        "orthogonality_log10": log10_error(error),
        "eigenvalues": eigenvalues(matrix),
    }


HISTOGRAM = 1024
"""Values of a histogram at most: one for every token would be a third of a million."""

OPERATOR_METRICS: Mapping[str, str] = {
    "rotation_orthogonality": "largest entry of |QᵀQ − I| of the rotation alone; healthy below 2e-6, always; "
    "above: its parameters are not finite or its numbers too coarse, keep the residual in float32",
    "reflection_orthogonality": "largest entry of |HᵀH − I| of the reflection alone; healthy below 2e-6, "
    "always; above: as for the rotation",
}


def split(x: Tensor, streams: int) -> Tensor:
    """Slices the residual into streams: ``[..., n·d] → [..., n, d]``."""
    return torch.unflatten(x, -1, (streams, -1))


def check_streams(width: int, streams: int) -> None:
    """Refuses a number of streams that does not divide the width.

    Raises:
        ValueError: the rule, then the value.
    """
    if streams < 2 or width % streams:
        raise ValueError(f"streams must be at least 2 and divide the width {width}, got {streams}")
