import copy
import math

import pytest
import torch
from torch import nn

from app.layers import DenseLayer, ModReLU, ResidualLayer, ScaledLeakyReLU, UnitMeanSquare, UnitNormalise
from app.protocols import Diagnosable


def test_dense_and_residual():
    linear, h = nn.Linear(6, 6), torch.randn(4, 6)
    torch.testing.assert_close(DenseLayer(linear, nn.ReLU())(h), torch.relu(linear(h)))
    torch.testing.assert_close(ResidualLayer(linear, nn.ReLU())(h), h + linear(torch.relu(h)))


@pytest.mark.parametrize("cls", [DenseLayer, ResidualLayer])
def test_diagnostics(cls):
    layer = cls(nn.Linear(6, 6), nn.ReLU())
    assert isinstance(layer, Diagnosable)
    h, calls = torch.randn(16, 6), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    before = copy.deepcopy(layer.state_dict())
    found = layer.diagnostics(h)
    assert not calls  # a callback's hook must not see its own recomputation
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    assert set(found) == set(layer.METRICS)
    assert all(value.ndim == 0 and value.isfinite() for value in found.values())
    assert found["rms"].item() == pytest.approx(layer(h).square().mean().sqrt().item())
    exact = torch.linalg.matrix_norm(layer.linear.weight, 2).item()
    assert found["spectral_norm"].item() == pytest.approx(exact, rel=1e-3)


def test_dead_units_are_counted():
    layer = DenseLayer(nn.Linear(6, 6), nn.ReLU())
    with torch.no_grad():
        layer.linear.bias.copy_(torch.tensor([-99.0, -99, -99, 9, 9, 9]))
    assert layer.diagnostics(torch.randn(16, 6))["constant_fraction"].item() == 0.5


def test_scaled_leaky_relu_keeps_the_mean_square():
    h = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert ScaledLeakyReLU(0.3)(h).square().mean().item() == pytest.approx(1, rel=0.01)
    with pytest.raises(ValueError, match=r"slope must be between 0 and 1, got -0\.1"):
        ScaledLeakyReLU(-0.1)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e3])
def test_unit_mean_square(size):
    y = UnitMeanSquare()(size * torch.randn(5, 7))
    assert y.shape == (5, 8)
    torch.testing.assert_close(y.square().mean(-1), torch.ones(5))
    assert (y[:, -1] > 0).all()


def test_unit_normalise_and_mod_relu():
    h = torch.randn(3, 8)
    torch.testing.assert_close(UnitNormalise()(h).unflatten(-1, (2, 4)).norm(dim=-2), torch.ones(3, 4))
    layer = ModReLU(8)
    torch.testing.assert_close(layer(h), h)
    with torch.no_grad():
        layer.offset.fill_(-math.inf)
    assert not layer(h).any()
    with pytest.raises(ValueError, match="features must be even and positive, got 7"):
        ModReLU(7)
