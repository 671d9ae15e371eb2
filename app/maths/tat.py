"""Tailored activation transformation (TAT): a leaky slope that suits the depth.

c is the cosine between two inputs' states. Source: Zhang, Botev & Martens, arXiv:2203.08120.
"""

import math


def cosine_map(c: float, slope: float) -> float:
    """C_a(c): the cosine after a wide random layer with leaky ReLU of slope a, from c before it."""
    c = min(1.0, max(-1.0, c))
    kink = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
    return ((1 - slope) ** 2 * kink + 2 * slope * c) / (1 + slope**2)


def _cosine_after(depth: int, slope: float) -> float:
    c = 0.0
    for _ in range(depth):
        c = cosine_map(c, slope)
    return c


def leaky_slope(depth: int, cosine: float = 0.9) -> float:
    """The slope a for which ``depth`` layers send orthogonal inputs to ``cosine``, by bisection.

    A network too shallow to get there even at a = 0 gets 0, plain ReLU, the nearest there is.

    Raises:
        ValueError: depth below 1, or a cosine outside (0, 1).
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    if not 0 < cosine < 1:
        raise ValueError(f"cosine must be between 0 and 1, got {cosine}")
    low, high = 0.0, 1.0
    if _cosine_after(depth, low) < cosine:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _cosine_after(depth, middle) > cosine else (low, middle)
    return (low + high) / 2


def output_scale(slope: float) -> float:
    """√(2/(1 + a²)): the factor with which leaky ReLU keeps a standard normal's mean square."""
    return math.sqrt(2 / (1 + slope**2))
