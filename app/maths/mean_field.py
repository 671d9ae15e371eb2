"""Mean-field theory of radial bounding in wide networks with random maps of a given gain.

q is the variance per component before bounding, g the gain. Phasor radii then follow Rayleigh's law, of which
both maps below are moments. Source: derived for this project.
"""

import math


def next_variance(q: float, gain: float) -> float:
    """q′ = g² q (1 − e^(−1/2q)): the variance one layer later."""
    return gain**2 * q * -math.expm1(-1 / (2 * q))


def gradient_factor(q: float, gain: float) -> float:
    """χ = g² [1 − e^(−1/2q) + E₁(1/2q)/(4q)]: growth of the squared gradient through one layer, backwards.

    Inside the disc the Jacobian is I, outside one of its two singular values is 1/r, the other 0.
    """
    x = 1 / (2 * q)
    return gain**2 * (-math.expm1(-x) + exponential_integral(x) / (4 * q))


def gradient_ratio(depth: int, gain: float, q: float = 0.5) -> float:
    """‖∂L/∂z₁‖ / ‖∂L/∂z_depth‖ for pre-activations z, when the encoder's has variance ``q`` per component."""
    product = 1.0
    for _ in range(depth - 1):
        q = next_variance(q, gain)
        product *= gradient_factor(q, gain)
    return math.sqrt(product)


def exponential_integral(x: float) -> float:
    """E₁(x) = ∫_x^∞ e^(−t)/t dt for x > 0: a power series below 1, a continued fraction above.

    Source: Abramowitz & Stegun, 5.1.11 and 5.1.22.
    """
    if x <= 0:
        raise ValueError(f"x must be positive, got {x}")
    if x < 1:
        total, term = -math.log(x) - 0.57721566490153286, -1.0
        for k in range(1, 30):
            term *= -x / k
            total += term / k
        return total
    fraction = 0.0
    for k in range(80, 0, -1):
        fraction = k / (1 + k / (x + fraction))
    return math.exp(-x) / (x + fraction)
