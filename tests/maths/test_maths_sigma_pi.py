"""Bounded powers, magnitudes and gained products against plain Python numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from app.maths import sigma_pi

ANY = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from(
    [0.0, -0.0, 1e-9, 1e15, -1e-15, 1e30, -1e30]
)


@settings(max_examples=100, deadline=None)
@given(x=ANY, delta=st.sampled_from([1e-2, 1e-4, 1.0]))
def test_log_magnitude_and_its_slope(x: float, delta: float) -> None:
    leaf = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    y = sigma_pi.smooth_log_magnitude(leaf, delta)
    (slope,) = torch.autograd.grad(y, leaf)
    assert y.item() == pytest.approx(math.log(math.hypot(x, delta)), rel=1e-5, abs=1e-6)
    assert slope.item() == pytest.approx(x / math.hypot(x, delta) ** 2, rel=1e-5, abs=1e-30)
    assert abs(slope.item()) <= 1 / (2 * delta) * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1e-4, 1.0, 6e4], dtype=dtype, requires_grad=True)
    y = sigma_pi.smooth_log_magnitude(x, 1e-2)
    assert y.dtype == torch.float32
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.dtype == dtype
    assert slope.isfinite().all()


@settings(max_examples=100, deadline=None)
@given(t=st.floats(-1e6, 1e6), bound=st.floats(0.5, 20))
def test_soft_clamp(t: float, bound: float) -> None:
    u = sigma_pi.soft_clamp(torch.tensor(t, dtype=torch.float64), bound).item()
    knee = 0.75 * bound
    assert abs(u) <= bound
    if abs(t) <= knee:
        assert u == t
    else:
        ratio = (abs(t) - knee) / (bound - knee)
        assert u == pytest.approx(math.copysign(knee + (bound - knee) * ratio / (1 + ratio), t), rel=1e-9)


def test_soft_clamp_is_never_dead() -> None:
    t = torch.tensor([0.0, 5.9, 6.1, 16.0, 100.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(sigma_pi.soft_clamp(t, 8.0).sum(), t)
    expected = [1.0, 1.0, (1 + 0.1 / 2) ** -2, (1 + 10 / 2) ** -2, (1 + 94 / 2) ** -2]
    torch.testing.assert_close(slope, torch.tensor(expected, dtype=torch.float64))


def naive_product(t: Tensor, log_gain: Tensor, max_log: float) -> Tensor:
    return torch.exp(log_gain) * torch.expm1(sigma_pi.soft_clamp(t, max_log))


def naive_log(x: Tensor, delta: float) -> Tensor:
    return 0.5 * torch.log(x.square() + delta**2)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), spread=st.sampled_from([0.5, 5.0, 20.0]))
def test_recomputed_gradients_equal_autograd(seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    t = (spread * torch.randn(5, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    s = torch.randn(3, generator=generator, dtype=torch.float64).requires_grad_()
    results = []
    for function in (sigma_pi.gained_product, naive_product):
        y = function(t, s, 8.0)
        first = torch.autograd.grad(y.square().sum(), (t, s), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (t, s))
        results.append((y, *first, *second))
    for ours, autograd in zip(*results, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-9, atol=1e-12)


def test_gradcheck() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    s = torch.randn(3, dtype=torch.float64, requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: sigma_pi.smooth_log_magnitude(x, 0.1), (x,))
        assert check(lambda x: sigma_pi.paced_exponents(x, 0.3, 2.0), (x,))
        assert check(lambda t, s: sigma_pi.gained_product(3 * t, s, 8.0), (x, s))
    torch.testing.assert_close(sigma_pi.smooth_log_magnitude(x, 0.1), naive_log(x, 0.1))
    torch.testing.assert_close(sigma_pi.paced_exponents(x, 0.3, 2.0), 2 * torch.tanh(0.3 * x))


def test_gain_of_a_feature_map_is_summed_over_its_broadcast_dimensions() -> None:
    t = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    s = torch.zeros(3, 1, 1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(sigma_pi.gained_product(t, s, 8.0).sum(), s)
    torch.testing.assert_close(gradient, torch.expm1(t).sum(dim=(0, 2, 3)).view(3, 1, 1))


def gained(t: Tensor, s: Tensor) -> Tensor:
    return sigma_pi.gained_product(t, s, 0.5)


def test_vmap_and_jacobian() -> None:
    x = torch.rand(4, 3, dtype=torch.float64) + 0.5
    jacobian = torch.vmap(torch.func.jacrev(lambda v: sigma_pi.smooth_log_magnitude(v, 0.1)))(x)
    torch.testing.assert_close(jacobian, torch.diag_embed(x / (x.square() + 0.01)))

    s = torch.randn(4, 3, dtype=torch.float64)  # mapped over the gain alone, and over both
    for t, dims in ((x[0], (None, 0)), (x, (0, 0))):
        mapped = torch.vmap(torch.func.jacrev(gained, argnums=(0, 1)), in_dims=dims)(t, s)
        for row in range(4):
            expected = torch.autograd.functional.jacobian(gained, (t if t.dim() == 1 else t[row], s[row]))
            for ours, reference in zip(mapped, expected, strict=True):
                torch.testing.assert_close(ours[row], reference)


def test_no_exponent_no_product() -> None:
    assert torch.equal(sigma_pi.gained_product(torch.zeros(3), torch.tensor(5.0), 8.0), torch.zeros(3))


def test_centred_exponents_ignore_a_common_scale() -> None:
    w = sigma_pi.centred_exponents(torch.randn(3, 2, 5, dtype=torch.float64))
    torch.testing.assert_close(w.sum(dim=(1, 2)), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-12)
