import math

import pytest
import torch
from torch import nn

from app.layers.linear import (
    ComplexLinear,
    orthogonal_linear_,
    retract_,
    stacked,
    unit_variance_gain,
    unitary_,
)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_unitary_start(shape):
    weight = unitary_(torch.empty(2, *shape), 1.3)
    values = torch.linalg.svdvals(torch.complex(weight[0], weight[1]))
    torch.testing.assert_close(values, torch.full((min(shape),), 1.3), rtol=0, atol=1e-5)


def test_unitary_start_is_uniform():
    # Haar: the first moment of every entry vanishes, E|q|² = 1/n. QR without the phases would leave a bias.
    torch.manual_seed(0)
    draws = torch.stack([unitary_(torch.empty(2, 3, 3)) for _ in range(3000)])
    assert draws.mean(0).abs().max() < 0.04
    torch.testing.assert_close(draws.square().sum(1).mean(0), torch.full((3, 3), 1 / 3), rtol=0, atol=0.02)


def test_complex_linear_is_complex_multiplication():
    layer = ComplexLinear(6, 8)
    nn.init.normal_(layer.bias)
    h = torch.randn(5, 6)
    z, weight, bias = (torch.complex(t[0], t[1]) for t in (h.chunk(2, -1), layer.weight, layer.bias.chunk(2)))
    expected = z @ weight.T + bias
    torch.testing.assert_close(layer(h), torch.cat((expected.real, expected.imag), -1))
    # i·z in, i·W z out
    turned = torch.cat((-h[:, 3:], h[:, :3]), -1)
    out, without = layer(turned) - layer.bias, layer(h) - layer.bias
    torch.testing.assert_close(out, torch.cat((-without[:, 4:], without[:, :4]), -1))


def test_complex_linear_gradient():
    layer = ComplexLinear(4, 6).double()
    h = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    run = lambda h, w, b: torch.func.functional_call(layer, {"weight": w, "bias": b}, (h,))  # noqa: E731
    assert torch.autograd.gradcheck(run, (h, layer.weight, layer.bias))


@pytest.mark.parametrize(("sizes", "name"), [((3, 4), "features_in"), ((4, 0), "features_out")])
def test_complex_linear_refuses_odd_sizes(sizes, name):
    with pytest.raises(ValueError, match=f"{name} of a complex map must be even and positive, got"):
        ComplexLinear(*sizes)


@pytest.mark.parametrize("sizes", [(64, 128), (784, 128), (128, 128)])
def test_unit_variance_gain(sizes):
    torch.manual_seed(0)
    linear = orthogonal_linear_(nn.Linear(*sizes), unit_variance_gain(*sizes))
    assert linear(torch.randn(2000, sizes[0])).square().mean().item() == pytest.approx(1, rel=0.02)


def maps(kind, count):
    torch.manual_seed(0)
    return [
        ComplexLinear(8, 8) if kind == "complex" else orthogonal_linear_(nn.Linear(8, 8))
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("count", [1, 16, 35])
def test_retract_brings_every_map_back(kind, count):
    layers = maps(kind, count)
    for layer in layers:
        layer.weight.data.add_(0.05 * torch.randn(layer.weight.shape))
    before = stacked(layers)
    u, _, vh = torch.linalg.svd(before)
    addresses = [layer.weight.data_ptr() for layer in layers]
    retract_(layers, steps=6, gain=0.7)
    torch.testing.assert_close(stacked(layers), 0.7 * u @ vh, rtol=0, atol=1e-5)
    assert addresses == [layer.weight.data_ptr() for layer in layers]


def test_retract_of_an_orthogonal_map_changes_nothing():
    layers = maps("real", 3)
    before = stacked(layers).detach().clone()
    retract_(layers)
    torch.testing.assert_close(stacked(layers), before, rtol=0, atol=5e-6)


def test_zero_bias():
    assert not ComplexLinear(4, 4).bias.any()
    assert not orthogonal_linear_(nn.Linear(4, 4), math.sqrt(2)).bias.any()
