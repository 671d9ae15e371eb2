"""Architectures are compared at equal numbers of trained parameters."""

from collections.abc import Callable

import torch
from torch import nn

Build = Callable[[int, int | None], nn.Module]
"""Makes a network of a given depth and hidden width; ``None`` for its default width."""


def count_parameters(network: nn.Module) -> int:
    """The number of trained parameters."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def match_parameters(
    build: Build, target: int, tolerance: float = 0.02, deepest: int = 64
) -> tuple[int, int | None]:
    """Finds the depth, then the hidden width, at which a network has ``target`` trained parameters.

    First the depth that comes nearest at the default hidden width. Only if that is off by more than
    ``tolerance`` is the hidden width changed, to the one that comes nearest. Nothing is allocated.

    Args:
        build: makes the network.
        target: trained parameters wanted, at least 1.
        tolerance: largest relative difference allowed.
        deepest: no depth above this is taken.

    Returns:
        Depth, and hidden width or ``None`` for the default.

    Raises:
        ValueError: no depth and width come near enough.
    """
    if target < 1:
        raise ValueError(f"target must be at least 1, got {target}")

    def count(depth: int, hidden: int | None = None) -> int:
        with torch.device("meta"):
            return count_parameters(build(depth, hidden))

    def off(parameters: int) -> float:
        return abs(parameters - target) / target

    block = count(2) - count(1)  # every block has the same number
    depth = min(max(1, 1 + round((target - count(1)) / block)), deepest)
    if off(count(depth)) <= tolerance:
        return depth, None
    one, two = count(depth, 1), count(depth, 2)
    hidden = max(1, 1 + round((target - one) / (two - one)))
    found = count(depth, hidden)
    if off(found) > tolerance:
        raise ValueError(f"parameters must come within {tolerance:.0%} of {target}, got {found} at best")
    return depth, hidden
