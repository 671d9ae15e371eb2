"""Sigma-Pi networks and their siblings: one suite over all, sizes, ablations, penalties."""

import copy

import pytest
import torch
from torch import nn

from app.layers.sigma_pi_base import PACE
from app.networks.arithmetic import INALUNetwork, NACTimesNetwork, NMUNetwork
from app.networks.matching import match_width, trained_parameters
from app.networks.sigma_pi import (
    BilinearCNN,
    BilinearMLP,
    PlainCNN,
    PlainMLP,
    PolyWeaveCNN,
    PolyWeaveMLP,
    SigmaPiCNN,
    SigmaPiMLP,
    TanhPolyWeaveMLP,
)
from app.protocols import Constrained, Penalised

DENSE = (SigmaPiMLP, PlainMLP, BilinearMLP, PolyWeaveMLP, TanhPolyWeaveMLP)
CONVOLUTIONAL = (SigmaPiCNN, PlainCNN, BilinearCNN, PolyWeaveCNN)
ARITHMETIC = (NMUNetwork, NACTimesNetwork, INALUNetwork)


def build(kind: type[nn.Module], depth: int = 2) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    shape = (3, 8, 8) if kind in CONVOLUTIONAL else (2, 3)
    return kind(shape, 5, depth=depth, width=6), torch.rand(7, *shape) + 0.5


@pytest.mark.parametrize("kind", [*DENSE, *CONVOLUTIONAL, *ARITHMETIC])
@pytest.mark.parametrize("depth", [1, 2])
def test_one_suite_over_all(kind, depth: int) -> None:
    network, x = build(kind, depth)
    y = network(x)
    assert y.shape == (7, 5)
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    twin = copy.deepcopy(network)
    twin.load_state_dict(network.state_dict())
    torch.testing.assert_close(twin.eval()(x), network.eval()(x))
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        build(kind, 0)


@pytest.mark.parametrize("kind", [*DENSE[:3], *CONVOLUTIONAL, *ARITHMETIC])
def test_compiles_without_a_break(kind) -> None:
    network, x = build(kind)
    expected = copy.deepcopy(network)(x)
    network.compile(fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_siblings_match_in_trained_parameters(shape: tuple[int, int, int]) -> None:
    for ours, siblings in ((SigmaPiCNN, CONVOLUTIONAL[1:]), (SigmaPiMLP, DENSE[1:])):
        parameters = trained_parameters(ours(shape, 10, depth=3))
        for sibling in siblings:
            width = match_width(
                lambda width, sibling=sibling: sibling(shape, 10, depth=3, width=width), parameters
            )
            matched = trained_parameters(sibling(shape, 10, depth=3, width=width))
            assert abs(matched / parameters - 1) <= 0.02, (sibling, width, matched, parameters)


def test_match_width_is_the_nearest() -> None:
    for parameters in (2, 3, 4, 50, 1000):
        width = match_width(lambda width: nn.Linear(3, width, bias=False), parameters)
        assert width == max(
            1, min((parameters // 3, parameters // 3 + 1), key=lambda w: abs(3 * w - parameters))
        )
    with pytest.raises(ValueError, match="parameters must be at least half"):
        match_width(lambda width: nn.Linear(100, width), 10)


def test_images_must_be_large_enough() -> None:
    with pytest.raises(ValueError, match=r"input_shape must be \(C, H, W\)"):
        SigmaPiCNN((3, 7, 8), 10, depth=3)
    with pytest.raises(ValueError, match=r"input_shape must be \(C, H, W\)"):
        PlainCNN((64,), 10)


@pytest.mark.parametrize("kind", [SigmaPiMLP, SigmaPiCNN])
@pytest.mark.parametrize("rank", [0, 2])
def test_ablations(kind, rank: int) -> None:
    torch.manual_seed(0)
    shape = (3, 8, 8)
    network = kind(shape, 5, depth=2, width=6, bilinear_rank=rank).train()
    x = torch.rand(9, *shape) + 0.5
    state, stream = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    predictions = network.ablated(x)
    assert torch.equal(stream, torch.get_rng_state())
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name
    expected = ["none", "sigma", "product"] + (["bilinear", "multiplicative"] if rank else [])
    assert list(predictions) == expected
    torch.testing.assert_close(predictions["none"], network(x).detach())  # training mode: batch statistics

    with torch.no_grad():  # a branch that does nothing changes nothing when it is removed
        for name, parameter in network.named_parameters():
            if name.endswith("pi_weight_raw"):
                parameter.zero_()
    predictions = network.ablated(x)
    torch.testing.assert_close(predictions["product"], predictions["none"])
    assert not torch.allclose(predictions["sigma"], predictions["none"])

    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("pi_weight_raw"):
                parameter.normal_(std=1 / PACE)
            if name.endswith(".weight") and parameter.ndim == (2 if kind is SigmaPiMLP else 4):
                parameter.zero_()
    predictions = network.ablated(x)
    if kind is SigmaPiMLP:
        torch.testing.assert_close(predictions["sigma"], predictions["none"])
    assert not torch.allclose(predictions["product"], predictions["none"])


def test_nmu_penalty_sets_in() -> None:
    network = NMUNetwork((4,), 1, depth=2, strength=10.0, ramp=(2, 4))
    assert isinstance(network, Penalised)
    assert isinstance(network, Constrained)
    x = torch.rand(3, 4)
    weights = [layer.weight.detach() for layer in network.layers]
    whole = 10 * sum(torch.minimum(w.abs(), (1 - w.abs()).abs()).mean() for w in weights)
    for factor in (0, 0, 0, 0.5, 1, 1):
        prediction, penalty = network.with_penalty(x)
        assert torch.equal(prediction, network(x))
        assert penalty.item() == pytest.approx(factor * whole.item(), rel=1e-5)
        network.constrain()
    assert network.state_dict()["steps"] == 6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depth": 3}, "depth of an arithmetic network must be 1 or 2, got 3"),
        ({"strength": -1.0}, "strength must be at least 0, got -1.0"),
        ({"ramp": (5, 5)}, "ramp must be two rising numbers of steps"),
    ],
)
def test_arguments_are_checked(wrong, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        INALUNetwork((4,), 1, **wrong)


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((1, 28, 28), {PlainCNN: 74, BilinearCNN: 66, PolyWeaveCNN: 52}),
        ((3, 32, 32), {PlainCNN: 74, BilinearCNN: 66, PolyWeaveCNN: 53}),
    ],
)
def test_widths_in_the_configs_match(shape: tuple[int, int, int], widths: dict[type[nn.Module], int]) -> None:
    ours = trained_parameters(SigmaPiCNN(shape, 10))
    for kind, width in widths.items():
        assert abs(trained_parameters(kind(shape, 10, width=width)) / ours - 1) <= 0.02, kind
