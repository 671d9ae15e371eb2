"""Rules that every network has for its sizes."""

import math
from collections.abc import Sequence


def check_sizes(input_shape: Sequence[int], num_outputs: int, depth: int, width: int) -> None:
    """Refuses sizes that make no network.

    Raises:
        ValueError: the rule, then the value.
    """
    if not input_shape or math.prod(input_shape) < 1 or min(input_shape) < 1:
        raise ValueError(f"input_shape must hold positive sizes, got {tuple(input_shape)}")
    for name, value in (("num_outputs", num_outputs), ("depth", depth), ("width", width)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_even(width: int) -> None:
    """Refuses a width that is no whole number of phasors.

    Raises:
        ValueError: the rule, then the value.
    """
    if width % 2:
        raise ValueError(f"width must be even, since a phasor has two components, got {width}")
