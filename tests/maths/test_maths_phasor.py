import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.maths.phasor import mod_relu, phase, radial_bound, radius, unit_normalise

BUNDLES = (1, 2, 4, 8)


def reference(h, bundle):
    """v / max(1, ‖v‖) in float64 with the overflow divided out, bundle by bundle."""
    v = h.double().reshape(*h.shape[:-1], bundle, -1)
    largest = v.abs().amax(-2, keepdim=True).clamp(min=1)
    norm = largest * (v / largest).square().sum(-2, keepdim=True).sqrt()
    return (v / norm.clamp(min=1)).reshape(h.shape)


def away_from_kink(shape, bundle, seed=0):
    """Random bundles whose radius is in (.2, .8) or (1.3, 3)."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(*shape[:-1], bundle, shape[-1] // bundle, dtype=torch.float64, generator=generator)
    v = v / v.norm(dim=-2, keepdim=True)
    inside = torch.rand(v.shape[:-2] + v.shape[-1:], generator=generator) < 0.5
    size = torch.rand(inside.shape, dtype=torch.float64, generator=generator)
    size = torch.where(inside, 0.2 + 0.6 * size, 1.3 + 1.7 * size)
    return (v * size.unsqueeze(-2)).reshape(shape)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=60)
@given(h=hnp.arrays("float32", (3, 8), elements=floats), bundle=st.sampled_from(BUNDLES))
def test_value_matches_reference_over_all_floats(h, bundle):
    h = torch.from_numpy(h)
    y = radial_bound(h, bundle)
    torch.testing.assert_close(y.double(), reference(h, bundle), rtol=1e-6, atol=1e-38)
    assert radius(y.double(), bundle).max() <= 1 + 1e-6


@settings(deadline=None, max_examples=60)
@given(
    h=hnp.arrays("float32", (2, 8), elements=st.floats(-0.25, 0.25, width=32)),
    bundle=st.sampled_from(BUNDLES),
)
def test_identity_inside_is_exact(h, bundle):
    h = torch.from_numpy(h)
    assert torch.equal(radial_bound(h, bundle), h)


@settings(deadline=None, max_examples=40)
@given(
    u=hnp.arrays("float64", (2, 8), elements=st.floats(-1e6, 1e6)),
    v=hnp.arrays("float64", (2, 8), elements=st.floats(-1e6, 1e6)),
    bundle=st.sampled_from(BUNDLES),
)
def test_non_expansive(u, v, bundle):
    u, v = torch.from_numpy(u), torch.from_numpy(v)
    moved = (radial_bound(u, bundle) - radial_bound(v, bundle)).norm()
    assert moved <= (u - v).norm() * (1 + 1e-9) + 1e-12


def test_bundle_one_is_hard_tanh():
    h = torch.linspace(-3, 3, 24)
    torch.testing.assert_close(radial_bound(h, 1), torch.nn.functional.hardtanh(h), rtol=0, atol=0)


def test_split_half_layout():
    y = radial_bound(torch.tensor([3.0, 0.3, 4.0, 0.4]))
    torch.testing.assert_close(y, torch.tensor([0.6, 0.3, 0.8, 0.4]))


@pytest.mark.parametrize("bundle", BUNDLES)
def test_gradcheck(bundle):
    h = away_from_kink((3, 8), bundle).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: radial_bound(t, bundle), h)
    assert torch.autograd.gradgradcheck(lambda t: radial_bound(t, bundle), h)


def test_jacobian_is_tangential_outside():
    v = torch.tensor([3.0, 4.0], dtype=torch.float64)
    jacobian = torch.func.jacrev(radial_bound)(v)
    u = v / 5
    expected = (torch.eye(2, dtype=torch.float64) - torch.outer(u, u)) / 5
    torch.testing.assert_close(jacobian, expected)
    torch.testing.assert_close(
        torch.linalg.svdvals(jacobian), torch.tensor([0.2, 0.0], dtype=torch.float64), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("bundle", BUNDLES)
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-23, 1e-20, 1e-10, 0.5, 1.0, 1.5, 1e9, 1e18, 1e30])
def test_gradient_is_finite_at_every_size(bundle, size):
    h = torch.full((2, 8), size)
    h[1] *= torch.tensor([1.0, -1.0]).repeat(4)
    h.requires_grad_()
    radial_bound(h, bundle).sum().backward()
    assert h.grad.isfinite().all()
    if size < 0.3:
        assert torch.equal(h.grad, torch.ones_like(h))


@pytest.mark.parametrize(
    ("dtype", "largest", "tolerance"),
    [(torch.float32, 3e38, 1e-6), (torch.float16, 6e4, 1e-3), (torch.bfloat16, 3e38, 4e-3)],
)
@pytest.mark.parametrize("bundle", BUNDLES)
def test_largest_values_keep_their_direction(dtype, largest, tolerance, bundle):
    h = torch.full((1, 8), largest, dtype=dtype)
    y = radial_bound(h, bundle)
    assert y.dtype == dtype
    torch.testing.assert_close(
        y.double(), torch.full((1, 8), bundle**-0.5, dtype=torch.float64), rtol=tolerance, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    h = (300 * torch.randn(64, 32)).to(dtype).requires_grad_()
    wide = h.detach().float().requires_grad_()
    y, expected = radial_bound(h), radial_bound(wide)
    assert torch.equal(y, expected.to(dtype))
    y.float().square().sum().backward()
    assert h.grad.dtype == dtype
    assert h.grad.isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bundle", BUNDLES)
def test_non_finite_stays_in_its_bundle(bad, bundle):
    h = torch.full((2, 16), 0.7)
    h[0, 0] = bad
    y = radial_bound(h, bundle)
    finite = y.view(2, bundle, -1).isfinite().all(1)
    assert not finite[0, 0]
    assert finite.flatten()[1:].all()
    assert torch.equal(y[1], radial_bound(h[1], bundle))


def test_nan_in_a_gradient_is_not_hidden():
    h = torch.tensor([[math.nan, 0.1, 0.1, 0.1]], requires_grad=True)
    radial_bound(h).sum().backward()
    assert h.grad[0, 0].isnan()
    assert h.grad[0, 1] == 1


@pytest.mark.parametrize("in_dim", [0, 1])
def test_vmap(in_dim):
    h = 2 * torch.randn(4, 5, 8)
    mapped = torch.func.vmap(radial_bound, in_dims=in_dim)(h)
    assert torch.equal(mapped, radial_bound(h.movedim(in_dim, 0)))
    per_sample = torch.func.vmap(torch.func.grad(lambda t: radial_bound(t).pow(3).sum()))(h[0])
    leaf = h[0].clone().requires_grad_()
    radial_bound(leaf).pow(3).sum().backward()
    torch.testing.assert_close(per_sample, leaf.grad)


@pytest.mark.parametrize(("bundle", "backend"), [(2, "inductor"), (1, "aot_eager"), (8, "aot_eager")])
def test_compiles_whole(bundle, backend):
    compiled = torch.compile(lambda t: radial_bound(t, bundle), fullgraph=True, backend=backend)
    h = torch.tensor([[0.1, 3.0, 0.2, 4.0] * 2, [3e38, 0.0, 3e38, 0.0] * 2], requires_grad=True)
    other = h.detach().clone().requires_grad_()
    y, expected = compiled(h), radial_bound(other, bundle)
    torch.testing.assert_close(y, expected)
    y.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    torch.testing.assert_close(h.grad, other.grad)


def test_autocast_keeps_the_type():
    with torch.autocast("cpu", torch.bfloat16):
        z = torch.nn.functional.linear(torch.randn(4, 8), torch.randn(8, 8))
        y = radial_bound(z)
    assert z.dtype == y.dtype == torch.bfloat16


def test_radius_and_phase():
    h = torch.tensor([3.0, -1.0, 0.0, 4.0, 0.0, 0.0])
    torch.testing.assert_close(radius(h), torch.tensor([5.0, 1.0, 0.0]))
    torch.testing.assert_close(phase(h), torch.tensor([math.atan2(4, 3), math.pi, 0.0]))


@pytest.mark.parametrize("bundle", [0, -1, 3])
def test_bundle_must_divide(bundle):
    with pytest.raises(ValueError, match=f"divisor of the 8 features, got {bundle}"):
        radial_bound(torch.zeros(2, 8), bundle)


def test_unit_normalise():
    h = away_from_kink((4, 8), 2)
    torch.testing.assert_close(radius(unit_normalise(h)), torch.ones(4, 4, dtype=torch.float64))
    assert torch.autograd.gradcheck(unit_normalise, h.requires_grad_())
    zero = torch.zeros(1, 4, requires_grad=True)
    unit_normalise(zero).sum().backward()
    assert zero.grad.isfinite().all()


def test_mod_relu():
    h = torch.tensor([[3.0, 0.3, 0.0, 4.0, 0.4, 0.0]], requires_grad=True)
    y = mod_relu(h, torch.tensor([-1.0, -1.0, 0.5]))
    torch.testing.assert_close(y[:, :2], torch.tensor([[2.4, 0.0]]))
    torch.testing.assert_close(y[:, 3:5], torch.tensor([[3.2, 0.0]]))
    y.sum().backward()
    assert h.grad.isfinite().all()
    v = away_from_kink((3, 8), 2).requires_grad_()
    offset = torch.full((4,), -0.05, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mod_relu, (v, offset))
