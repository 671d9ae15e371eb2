"""Probe networks of a single operator."""

import pytest
import torch
from torch import nn

from app.networks import probes, published
from app.protocols import Diagnosable, Penalised

N = 6
OURS = [
    probes.CayleyProbe,
    probes.ReflectionProbe,
    probes.DeltaProbe,
    probes.EDeltaProbe,
    probes.TwoReflectionsProbe,
    probes.CayleyIterationProbe,
]
PUBLISHED = [published.PublishedEDeltaProbe, published.PublishedDDLProbe, published.PublishedJPmHCProbe]
KEEP_NORMS = [probes.CayleyProbe, probes.ReflectionProbe, probes.TwoReflectionsProbe]


def make(probe: type[nn.Module], **arguments: object) -> nn.Module:
    torch.manual_seed(0)
    made = probe((N,), N, **arguments)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=g))
    return made


def inputs() -> torch.Tensor:
    return torch.randn(20, N, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("probe", [*OURS, *PUBLISHED])
def test_shapes_gradients_and_copies(probe: type[nn.Module]) -> None:
    made, x = make(probe), inputs()
    y = made(x)
    assert y.shape == x.shape
    loss = y.square().sum() + (y * x).sum() * 0.3
    if isinstance(made, Penalised):
        prediction, penalty = made.with_penalty(x)
        assert torch.equal(prediction, y)
        assert 0 < float(penalty.detach()) <= 0.5
        loss = loss + penalty
    (loss + (y * torch.arange(N)).sum()).backward()
    assert [n for n, p in made.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []
    assert isinstance(made, Penalised) == (probe in (probes.EDeltaProbe, published.PublishedEDeltaProbe))


@pytest.mark.parametrize("probe", KEEP_NORMS)
def test_orthogonal_probes_keep_norms(probe: type[nn.Module]) -> None:
    x = inputs()
    torch.testing.assert_close(make(probe)(x).norm(dim=-1), x.norm(dim=-1), rtol=2e-6, atol=0)


def test_a_start_along_x_is_most_of_the_answer_to_negation() -> None:
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    for probe in (probes.ReflectionProbe, probes.EDeltaProbe):
        torch.manual_seed(0)
        towards = nn.functional.cosine_similarity(probe((64,), 64)(x), -x).mean()
        away = nn.functional.cosine_similarity(probe((64,), 64, along=0.0)(x), -x).mean()
        assert towards > 0.2
        assert away < -0.3


@pytest.mark.parametrize(
    "probe", [probes.TwoReflectionsProbe, probes.CayleyIterationProbe, probes.CayleyProbe]
)
def test_rotations_start_where_negation_has_a_gradient(probe: type[nn.Module]) -> None:
    """At the identity it has none: xᵀAx = 0 for every skew A."""
    torch.manual_seed(0)
    made, x = probe((64,), 64), torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    y = made(x)
    assert -0.9999 < nn.functional.cosine_similarity(y, -x).mean() < -0.7
    (y + x).square().mean().backward()
    last = made.fused.output.weight.grad
    assert last is not None
    assert last.norm() > 1e-4


@pytest.mark.parametrize("probe", [p for p in OURS if hasattr(p, "METRICS")])
def test_diagnostics(probe: type[nn.Module]) -> None:
    made = make(probe)
    assert isinstance(made, Diagnosable)
    found = made.diagnostics(inputs())
    assert set(found) == set(made.METRICS)
    assert all(v.dim() in (0, 1, 2) and v.isfinite().all() for v in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("along", [1.0])
def test_negation_is_learned_by_reflection_and_the_gate_collapses(along: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 64)
    made = probes.EDeltaProbe((64,), 64, along=along)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-3)
    for _ in range(1000):
        batch = x[torch.randint(500, (32,))]
        prediction, penalty = made.with_penalty(batch)
        optimizer.zero_grad()
        ((prediction + batch).square().mean() + penalty).backward()
        optimizer.step()
    test = torch.randn(500, 64)
    assert nn.functional.cosine_similarity(made(test), -test).mean() > 0.98


def test_refuses() -> None:
    with pytest.raises(ValueError, match=r"num_outputs must be the input's size \(6,\), got 5"):
        probes.CayleyProbe((6,), 5)
    with pytest.raises(ValueError, match="penalty_weight must not be negative, got -1"):
        probes.EDeltaProbe((6,), 6, penalty_weight=-1)
