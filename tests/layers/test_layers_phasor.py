import copy

import pytest
import torch

from app.layers import RadialBound, ZPlaneLinear
from app.maths.phasor import radial_bound, radius
from app.protocols import Diagnosable

MIXINGS = ("real", "complex")


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("bundle", [1, 2, 8])
def test_is_a_map_then_bounding(mixing, bundle):
    layer = ZPlaneLinear(8, 16, mixing, bundle, gain=3.0)
    h = torch.randn(4, 8)
    torch.testing.assert_close(layer(h), radial_bound(layer.linear(h), bundle))
    assert radius(layer(h), bundle).max() <= 1 + 1e-6


@pytest.mark.parametrize("mixing", MIXINGS)
def test_start_is_orthogonal_with_zero_bias(mixing):
    layer = ZPlaneLinear(12, 12, mixing, gain=1.5)
    basis = layer.linear(torch.eye(12))
    torch.testing.assert_close(basis.T @ basis, 2.25 * torch.eye(12), rtol=0, atol=1e-5)
    assert not layer.linear.bias.any()


def test_complex_mixing_has_half_the_weights():
    real, mixed = (ZPlaneLinear(16, 16, m).linear.weight.numel() for m in MIXINGS)
    assert mixed * 2 == real


@pytest.mark.parametrize("mixing", MIXINGS)
def test_deepcopy_and_state_dict(mixing):
    layer, other = ZPlaneLinear(8, 8, mixing), ZPlaneLinear(8, 8, mixing)
    h = torch.randn(3, 8)
    assert torch.equal(copy.deepcopy(layer)(h), layer(h))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(h), layer(h))


@pytest.mark.parametrize("mixing", MIXINGS)
def test_compiles_whole(mixing):
    layer = ZPlaneLinear(8, 8, mixing)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    h = torch.randn(3, 8)
    torch.testing.assert_close(compiled(h), layer(h))
    compiled(h).sum().backward()
    assert layer.linear.weight.grad.isfinite().all()


@pytest.mark.parametrize("mixing", MIXINGS)
def test_autocast(mixing):
    layer = ZPlaneLinear(8, 8, mixing)
    h = torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(h)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(h), rtol=0, atol=0.03)
    y.float().sum().backward()
    assert layer.linear.weight.grad.isfinite().all()


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("bundle", [1, 2, 4])
def test_diagnostics(mixing, bundle):
    layer = ZPlaneLinear(64, 64, mixing, bundle)
    assert isinstance(layer, Diagnosable)
    h = torch.randn(300, 64)
    state = torch.get_rng_state()
    before = copy.deepcopy(layer.state_dict())
    found = layer.diagnostics(h)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    expected = set(layer.METRICS) - (set() if bundle == 2 else {"phasors"})
    assert set(found) == expected
    assert all(value.isfinite().all() and not value.requires_grad for value in found.values())
    assert all(value.ndim == 0 for name, value in found.items() if name not in ("radius", "phasors"))
    assert found["radius"].ndim == 1
    assert len(found["radius"]) <= 1024
    z = layer.linear(h)
    assert found["bounded_fraction"].item() == pytest.approx((radius(z, bundle) > 1).float().mean().item())
    assert found["spectral_norm"].item() == pytest.approx(1, abs=1e-3)
    if bundle == 2:
        points = found["phasors"]
        assert points.shape[1] == 2
        assert 100 <= len(points) <= 256
        states = torch.stack(layer(h).chunk(2, -1), -1).flatten(0, 1)
        assert torch.equal(points[0], states[0])
        assert (points.unsqueeze(1) == states).all(-1).any(1).all()


def test_diagnostics_tell_collapse_from_health():
    torch.manual_seed(0)
    layer = ZPlaneLinear(64, 64)
    healthy = layer.diagnostics(torch.randn(256, 64) / 8)
    collapsed = layer.diagnostics(torch.randn(64) + 0.01 * torch.randn(256, 1) * torch.randn(64))
    assert healthy["participation_ratio"] > 20
    assert collapsed["participation_ratio"] < 2
    assert healthy["pairwise_cosine"].abs() < 0.1
    assert collapsed["pairwise_cosine"] > 0.95
    assert collapsed["phase_coherence"] > 0.95
    assert healthy["phase_coherence"] < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixing": "quaternion"}, 'mixing must be "real" or "complex", got \'quaternion\''),
        ({"bundle": 0}, "bundle must be at least 1, got 0"),
        ({"bundle": 3}, "features_out must be a positive multiple of bundle 3, got 8"),
        ({"gain": 0.0}, r"gain must be positive, got 0\.0"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ZPlaneLinear(8, 8, **arguments)


def test_radial_bound_module():
    h = 2 * torch.randn(3, 8)
    assert torch.equal(RadialBound(4)(h), radial_bound(h, 4))
    with pytest.raises(ValueError, match="bundle must be at least 1, got 0"):
        RadialBound(0)
