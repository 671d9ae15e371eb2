"""Networks of equal size: the width at which one has as many trained parameters as another."""

from collections.abc import Callable

import torch
from torch import nn


def trained_parameters(network: nn.Module) -> int:
    """The number of parameters that an optimizer moves."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def match_width(build: Callable[[int], nn.Module], parameters: int) -> int:
    """The width, ≥ 1, at which ``build(width)`` comes nearest to a number of trained parameters.

    Args:
        build: makes a network that grows with its width; called on the meta device.
        parameters: the number to come near to.

    Raises:
        ValueError: when even width 1 has more than twice as many.
    """

    def size(width: int) -> int:
        with torch.device("meta"):
            return trained_parameters(build(width))

    if size(1) > 2 * parameters:
        raise ValueError(f"parameters must be at least half of width 1's {size(1)}, got {parameters}")
    above = 1
    while size(above) < parameters:
        above *= 2
    below = above // 2
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if size(middle) < parameters else (below, middle)
    return min(
        (width for width in (below, above) if width >= 1), key=lambda width: abs(size(width) - parameters)
    )
