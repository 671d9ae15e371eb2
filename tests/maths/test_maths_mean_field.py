import math

import pytest
import torch
from scipy import integrate, special

from app.maths.mean_field import exponential_integral, gradient_factor, gradient_ratio, next_variance
from app.maths.phasor import radial_bound


@pytest.mark.parametrize("x", [1e-8, 0.01, 0.5, 0.999, 1.0, 1.7, 10.0, 100.0])
def test_exponential_integral(x):
    assert exponential_integral(x) == pytest.approx(special.exp1(x), rel=1e-12)


@pytest.mark.parametrize("q", [0.02, 0.5, 3.0])
def test_maps_are_rayleigh_moments(q):
    density = lambda r: r / q * math.exp(-r * r / (2 * q))  # noqa: E731
    second = integrate.quad(lambda r: min(r, 1) ** 2 * density(r), 0, 40, points=[1])[0]
    assert next_variance(q, 1.3) == pytest.approx(1.69 * second / 2, rel=1e-6)
    squared = integrate.quad(lambda r: (1 if r < 1 else 0.5 / r**2) * density(r), 0, 40, points=[1])[0]
    assert gradient_factor(q, 1.3) == pytest.approx(1.69 * squared, rel=1e-6)


def test_maps_match_sampled_phasors():
    z = math.sqrt(0.5) * torch.randn(
        1, 200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    z.requires_grad_()
    y = radial_bound(z)
    assert y.square().mean().item() == pytest.approx(next_variance(0.5, 1.0), rel=0.01)
    g = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (grad,) = torch.autograd.grad(y, z, g)
    assert (grad.square().mean() / g.square().mean()).item() == pytest.approx(
        gradient_factor(0.5, 1.0), rel=0.02
    )


@pytest.mark.parametrize(
    ("gain", "theory"),
    [(0.9, 2.5e-5), (1.0, 0.66), (1.05, 5.6), (1.1, 31), (1.2, 635), (math.sqrt(2), 1.2e5)],
)
def test_ratio_over_100_layers(gain, theory):
    assert gradient_ratio(100, gain) == pytest.approx(theory, rel=0.15)
