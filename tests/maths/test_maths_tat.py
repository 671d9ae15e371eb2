import math

import numpy as np
import pytest
from scipy import integrate

from app.maths.tat import cosine_map, leaky_slope, output_scale


def test_published_constants_at_depth_100():
    slope = leaky_slope(100)
    assert slope == pytest.approx(0.5704, abs=5e-5)
    assert output_scale(slope) == pytest.approx(1.2284, abs=5e-5)


@pytest.mark.parametrize("c", [-0.9, 0.0, 0.3, 0.95])
@pytest.mark.parametrize("slope", [0.0, 0.57, 1.0])
def test_cosine_map_is_the_gaussian_expectation(c, slope):
    leaky = lambda t: np.where(t > 0, t, slope * t)  # noqa: E731
    density = lambda u, v: math.exp(-(u * u + v * v) / 2) / (2 * math.pi)  # noqa: E731
    value, _ = integrate.dblquad(
        lambda v, u: leaky(u) * leaky(c * u + math.sqrt(1 - c * c) * v) * density(u, v),
        -8,
        8,
        -8,
        8,
        epsabs=1e-6,
    )
    assert cosine_map(c, slope) == pytest.approx(value * output_scale(slope) ** 2, abs=1e-4)


@pytest.mark.parametrize("depth", [20, 50, 152])
def test_depth_reaches_the_cosine(depth):
    slope, c = leaky_slope(depth), 0.0
    for _ in range(depth):
        c = cosine_map(c, slope)
    assert c == pytest.approx(0.9, abs=1e-9)


def test_too_shallow_is_plain_relu():
    assert leaky_slope(3) == 0
    assert cosine_map(1.0, 0.5) == pytest.approx(1)


def test_refuses_bad_values():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        leaky_slope(0)
    with pytest.raises(ValueError, match=r"cosine must be between 0 and 1, got 1\.5"):
        leaky_slope(10, 1.5)
