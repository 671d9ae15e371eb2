"""Arithmetic units against their equations."""

import math

import pytest
import torch

from app.layers.arithmetic import INALU, NAU, NMU, NACPlus, NACTimes, nac_range
from app.layers.bilinear import BilinearConv2d, BilinearLinear


def test_nau_and_nmu_compute_and_stay_in_range() -> None:
    nau, nmu = NAU(3, 2), NMU(3, 2)
    with torch.no_grad():
        nau.weight.copy_(torch.tensor([[1.0, -1, 0], [3, 0.5, -9]]))
        nmu.weight.copy_(torch.tensor([[1.0, 1, 0], [2, 0.5, -1]]))
    nau.constrain()
    nmu.constrain()
    x = torch.tensor([[-2.0, 3, 5], [0, 4, 6]])
    torch.testing.assert_close(nau(x), torch.tensor([[-5.0, -5.5], [-4, -4]]))
    torch.testing.assert_close(nmu(x), torch.tensor([[-6.0, -4], [0, 0]]))
    assert NAU(100, 3).weight.abs().max() <= math.sqrt(6 / 103)
    assert NMU(50, 50).weight.min() >= 0.25
    assert NMU(50, 50).weight.max() <= 0.75


def test_nmu_passes_gradients_through_zeros() -> None:
    nmu, x = NMU(2, 1), torch.zeros(1, 2, requires_grad=True)
    with torch.no_grad():
        nmu.weight.fill_(1)
    nmu(x + torch.tensor([[0.0, 3.0]])).backward()
    assert x.grad.tolist() == [[3, 0]]


@pytest.mark.parametrize("sizes", [(6, 2), (100, 2), (20, 30)])
def test_nac_start_has_the_variance_of_its_rule(sizes: tuple[int, int]) -> None:
    r = nac_range(*sizes)
    raw, mask = ((2 * torch.rand(400_000, dtype=torch.float64) - 1) * r for _ in range(2))
    variance = (torch.tanh(raw) * torch.sigmoid(mask)).var().item()
    assert variance * sum(sizes) == pytest.approx(2, rel=0.02)


def test_nac_saturated_weights_select() -> None:
    for unit, expected in ((NACPlus(3, 1), -2.0 - 3), (NACTimes(3, 1), 2 / 3)):
        with torch.no_grad():
            unit.weight_raw.copy_(torch.tensor([[30.0, -30, 30]]))
            unit.mask_raw.copy_(torch.tensor([[40.0, 40, -40]]))
        assert unit(torch.tensor([[-2.0, 3, 7]])).item() == pytest.approx(expected, rel=1e-5)
        assert unit.diagnostics(torch.empty(0))["sparsity_error"] < 1e-6


def test_inalu() -> None:
    unit, x = INALU(3, 1), torch.tensor([[-2.0, 3, 7], [1e-30, 3, 7]])
    with torch.no_grad():
        for raw, mask in ((unit.add_raw, unit.add_mask), (unit.multiply_raw, unit.multiply_mask)):
            raw.copy_(torch.tensor([[30.0, 30, 30]]))
            mask.copy_(torch.tensor([[40.0, 40, -40]]))
        for gate, expected in ((40.0, [1.0, 3.0]), (-40.0, [-6.0, 3e-7])):
            unit.gate_raw.fill_(gate)
            torch.testing.assert_close(unit(x)[:, 0], torch.tensor(expected), rtol=1e-5, atol=1e-6)
        unit.multiply_raw.fill_(-30.0)
        unit.multiply_mask.fill_(40.0)
        huge = unit(torch.full((1, 3), 1e-6))
    assert huge.item() == pytest.approx(math.exp(20), rel=1e-5)
    assert unit.indecision() >= 0


def test_bilinear_layers() -> None:
    layer, conv = BilinearLinear(3, 2, rank=2).double(), BilinearConv2d(2, 3, 3, padding=1, rank=2).double()
    with torch.no_grad():
        layer.mix.normal_()
        conv.mix.normal_()
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = x @ layer.weight.T + layer.bias + ((x @ layer.left.T) * (x @ layer.right.T)) @ layer.mix.T
    torch.testing.assert_close(layer(x), expected)
    image = torch.randn(2, 2, 4, 4, dtype=torch.float64)

    def convolve(weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(image, weight, padding=1)

    pairs = convolve(conv.left) * convolve(conv.right)
    expected = (
        convolve(conv.weight)
        + conv.bias.view(3, 1, 1)
        + torch.einsum("nrhw,or->nohw", pairs, conv.mix[..., 0, 0])
    )
    torch.testing.assert_close(conv(image), expected)
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        BilinearLinear(3, 2, rank=0)
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        BilinearConv2d(3, 2, 3, 1, rank=0)
