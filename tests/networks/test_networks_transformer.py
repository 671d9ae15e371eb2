"""All transformers: causal, every parameter used, matched in size, and honest about their shortcut."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from app.layers.mixing import Additive, PrefixMean
from app.networks.edelta import EDelta, EDeltaCayley, EDeltaReflection, EDeltaTwoReflections
from app.networks.hyper_connections import HC, MHC, OHC, JPmHC, KromHC
from app.networks.matching import match_depth, trained_parameters
from app.networks.published import (
    PublishedDDL,
    PublishedEDelta,
    PublishedEDeltaStream,
    PublishedEDeltaToken,
    PublishedGPT,
    PublishedJPmHC,
    PublishedMHC,
)
from app.networks.transformer import DDL, GPT, Transformer
from app.protocols import Diagnosable, Penalised

OURS = (GPT, DDL, HC, MHC, JPmHC, EDelta, EDeltaCayley, EDeltaReflection, OHC, EDeltaTwoReflections, KromHC)
PUBLISHED_CAUSAL = (PublishedGPT, PublishedMHC, PublishedJPmHC, PublishedEDeltaToken)
SEES_THE_FUTURE = (PublishedDDL, PublishedEDelta, PublishedEDeltaStream)
GATED = (EDelta, PublishedEDelta, PublishedEDeltaStream, PublishedEDeltaToken)
TIME, FEATURES = 7, 5

every = pytest.mark.parametrize("network", [*OURS, *PUBLISHED_CAUSAL, *SEES_THE_FUTURE])
ours = pytest.mark.parametrize("network", OURS)


def make(network: Callable[..., nn.Module], trained: bool = True, **arguments: object) -> nn.Module:
    """A small network with every parameter moved: zeros and identities would hide leaks."""
    torch.manual_seed(0)
    made = network((TIME, FEATURES), FEATURES, depth=2, width=16, **arguments)
    if trained:
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=g))
    return made


def inputs(seed: int = 0, batch: int = 3) -> Tensor:
    return torch.randn(batch, TIME, FEATURES, generator=torch.Generator().manual_seed(seed))


def leak(network: nn.Module, position: int) -> float:
    """How far outputs up to ``position`` move when every later input is replaced; 0 is bitwise equality."""
    x, other = inputs(), inputs()
    other[:, position + 1 :] = inputs(7)[:, position + 1 :]
    with torch.no_grad():
        a, b = network(x), network(other)
    assert not torch.equal(a[:, position + 1 :], b[:, position + 1 :])
    return float((a - b)[:, : position + 1].abs().max())


@pytest.mark.parametrize("network", [*OURS, *PUBLISHED_CAUSAL])
def test_causal_networks_do_not_see_the_future(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    assert [leak(made, t) for t in range(TIME - 1)] == [0.0] * (TIME - 1)


@pytest.mark.parametrize("network", [EDelta, EDeltaCayley, EDeltaReflection, EDeltaTwoReflections])
def test_the_running_mean_does_not_see_it_either_but_sees_the_past(network: Callable[..., nn.Module]) -> None:
    made = make(network, source=PrefixMean())
    assert [leak(made, t) for t in range(TIME - 1)] == [0.0] * (TIME - 1)
    assert not torch.equal(made(inputs()), make(network)(inputs()))


@pytest.mark.parametrize("network", SEES_THE_FUTURE)
def test_three_published_networks_see_the_future(network: Callable[..., nn.Module]) -> None:
    assert leak(make(network), 0) > 1e-3


@every
def test_every_parameter_takes_part_in_the_loss(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    made(inputs()).square().sum().backward()
    # The published position T + 1 is never used; its row of the one parameter has gradient zero.
    idle = [n for n, p in made.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert idle == []
    fresh = make(network, trained=False)
    fresh(inputs()).square().sum().backward()
    assert [n for n, p in fresh.named_parameters() if p.grad is None] == []


@every
def test_shapes_sizes_copies_and_states(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    assert made(inputs()).shape == (3, TIME, FEATURES)
    assert made(inputs()[:, :3]).shape == (3, 3, FEATURES)
    assert torch.equal(copy.deepcopy(made)(inputs()), made(inputs()))
    fresh = make(network, trained=False)
    fresh.load_state_dict(made.state_dict())
    assert torch.equal(fresh(inputs()), made(inputs()))
    torch.manual_seed(0)
    assert network((TIME, 3), 2, depth=1, width=16)(torch.randn(2, TIME, 3)).shape == (2, TIME, 2)


@ours
def test_a_prefix_is_predicted_as_part_of_the_whole(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    torch.testing.assert_close(made(inputs())[:, :4], made(inputs()[:, :4]), rtol=1e-4, atol=1e-4)


@every
def test_only_gated_networks_have_a_penalty(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    assert isinstance(made, Penalised) == (network in GATED)
    if isinstance(made, Penalised):
        prediction, penalty = made.with_penalty(inputs())
        assert torch.equal(prediction, made(inputs()))
        assert penalty.dim() == 0
        assert 0 < float(penalty.detach()) <= 0.1 * 4  # at most λ in each of the four operators
        penalty.backward()
        fresh = make(network, trained=False)
        assert isinstance(fresh, Penalised)
        assert float(fresh.with_penalty(inputs())[1].detach()) == pytest.approx(0.4, abs=1e-6)


@ours
def test_diagnostics_of_the_whole(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    assert isinstance(made, Diagnosable)
    assert isinstance(made, Transformer)
    found = made.diagnostics(inputs())
    assert {name.rstrip("0123456789_") for name in found} == set(made.METRICS)
    assert {"shortcut_energy_01", "shortcut_energy_02", "norm_drift_02", "shortcut_condition_01"} <= set(
        found
    )
    rolled = found.pop("rollout_norm")
    assert all(value.dim() == 0 and value.isfinite() for value in found.values())
    assert rolled.dim() == 2
    assert len(rolled) == min(4, len(inputs()))
    if network in (GPT, OHC, EDeltaCayley, EDeltaReflection, EDeltaTwoReflections):
        assert float(found["shortcut_energy"]) == pytest.approx(1, abs=1e-4)
        assert float(found["shortcut_condition"]) == pytest.approx(1, abs=1e-4)


def test_the_energy_is_that_of_the_skip_path_alone() -> None:
    made = make(EDelta, gate_bias=0.7)
    assert isinstance(made, Transformer)
    found = made.diagnostics(inputs())
    for step in made.trunk.steps:
        step.write.weight.data.zero_()  # type: ignore[union-attr]
    alone = made.trunk.enter(inputs())
    # Without branches the states are other ones, so take a network whose operators do not depend on them.
    for step in made.trunk.steps:
        step.fused.input.weight.data.zero_()  # type: ignore[union-attr]
    found = made.diagnostics(inputs())
    start = alone
    for i, step in enumerate(made.trunk.steps):
        alone = step(alone)
        if i % 2:
            want = float((alone.norm() / start.norm()).detach())
            assert float(found[f"norm_drift_{i // 2 + 1:02d}"]) == pytest.approx(want, rel=1e-4)
            assert float(found[f"shortcut_energy_{i // 2 + 1:02d}"]) == pytest.approx(want**2, rel=1e-4)
            assert want < 0.99


def test_a_gate_at_one_half_loses_a_direction_a_step_and_a_biased_one_does_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 20, 8)
    energies = []
    for bias in (0.0, 4.0):
        found = EDelta((20, 8), 8, gate_bias=bias).diagnostics(x)
        energies.append([float(found[f"shortcut_energy_{layer:02d}"]) for layer in range(1, 7)])
        if bias == 0:
            assert float(found["shortcut_condition"]) > 1e3
    assert all(a > b for a, b in zip(energies[0], energies[0][1:], strict=False))
    assert energies[0][-1] < 0.1
    assert energies[1][-1] > 0.6


@pytest.mark.parametrize("network", [EDelta, MHC])
def test_compiled_equals_eager(network: Callable[..., nn.Module]) -> None:
    made = make(network)
    want = made(inputs())
    keys = list(made.state_dict())
    made.compile(fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(made(inputs()), want, rtol=1e-4, atol=1e-4)
    assert list(made.state_dict()) == keys
    if isinstance(made, Penalised):
        prediction, penalty = made.with_penalty(inputs())
        torch.testing.assert_close(prediction, want, rtol=1e-4, atol=1e-4)
        (prediction.sum() + penalty).backward()


TARGET = 1_812_000


@pytest.mark.parametrize("network", OURS)
def test_parameters_can_be_matched(network: Callable[..., nn.Module]) -> None:
    def build(depth: int, hidden: int | None) -> nn.Module:
        return network((255, 16), 16, depth=depth, hidden=hidden)

    depth, hidden = match_depth(build, TARGET)
    count = trained_parameters(build(depth, hidden))
    assert abs(count - TARGET) <= 0.02 * TARGET


def test_matching_takes_depth_first_and_refuses_the_impossible() -> None:
    def build(depth: int, hidden: int | None) -> nn.Module:
        return Transformer((8, 4), 4, lambda f, _: Additive(f, 16), depth, 16, 4, hidden)

    exact = trained_parameters(build(5, None))
    assert match_depth(build, exact) == (5, None)
    depth, hidden = match_depth(build, round(exact * 1.08))
    assert depth == 5
    assert hidden is not None
    assert hidden > 64
    with pytest.raises(ValueError, match="must come within 2% of 10, got"):
        match_depth(build, 10)
    with pytest.raises(ValueError, match="parameters must be at least 1, got 0"):
        match_depth(build, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": -3}, "depth must be at least 1, got -3"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"input_shape": (3, 4, 5)}, r"input_shape must be \(T, features\), got \(3, 4, 5\)"),
        ({"heads": 3}, "heads must be a divisor of the width 16, got 3"),
        ({"num_outputs": 0}, "num_outputs must be at least 1, got 0"),
    ],
)
def test_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPT(**({"input_shape": (7, 5), "num_outputs": 5, "depth": 1, "width": 16} | arguments))  # type: ignore[arg-type]


def test_refuses_a_longer_sequence() -> None:
    with pytest.raises(ValueError, match="at most 7 vectors, got 8"):
        make(GPT)(torch.zeros(1, 8, FEATURES))
