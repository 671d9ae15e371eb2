"""Networks of equal size: the width or the depth at which one has as many trained parameters as another."""

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


def match_depth(
    build: Callable[[int, int | None], nn.Module], parameters: int, tolerance: float = 0.02
) -> tuple[int, int | None]:
    """The depth, then the hidden width, at which a network has a number of trained parameters.

    First the depth that comes nearest at the default hidden width. Only if that is off by more than
    ``tolerance`` is the hidden width changed, to the one that comes nearest.

    Args:
        build: makes a network of a depth and a hidden width, ``None`` for its default; called on the meta
            device. Its size is linear in either.
        parameters: the number to come near to, at least 1.
        tolerance: largest relative difference allowed.

    Returns:
        Depth, and hidden width or ``None`` for the default.

    Raises:
        ValueError: when no depth and hidden width come near enough.
    """
    if parameters < 1:
        raise ValueError(f"parameters must be at least 1, got {parameters}")

    def size(depth: int, hidden: int | None = None) -> int:
        with torch.device("meta"):
            return trained_parameters(build(depth, hidden))

    depth = max(1, 1 + round((parameters - size(1)) / (size(2) - size(1))))
    if abs(size(depth) - parameters) <= tolerance * parameters:
        return depth, None
    narrowest = size(depth, 1)
    hidden = max(1, 1 + round((parameters - narrowest) / (size(depth, 2) - narrowest)))
    found = size(depth, hidden)
    if abs(found - parameters) > tolerance * parameters:
        raise ValueError(f"parameters must come within {tolerance:.0%} of {parameters}, got {found} at best")
    return depth, hidden
