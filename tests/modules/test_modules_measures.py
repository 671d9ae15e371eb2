"""R² and norm deviations against what they are by definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from app.modules.measures import R2, norm_deviation, rollout


def fed(metric: R2, prediction: Tensor, y: Tensor, size: int) -> R2:
    for a, b in zip(prediction.split(size), y.split(size), strict=True):
        metric.update(a, b)
    return metric


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), size=st.integers(1, 40), offset=st.sampled_from([0.0, 3.0, 1e3, -1e4]))
def test_r2_over_batches_is_that_of_the_whole(seed: int, size: int, offset: float) -> None:
    torch.manual_seed(seed)
    y = torch.randn(40, 5, 3) * torch.tensor([1.0, 2.0, 0.0]) + offset
    prediction = y + 0.5 * torch.randn_like(y)
    a, b = prediction.double().reshape(-1, 3), y.double().reshape(-1, 3)
    expected = 1 - (a - b).square().sum() / (b - b.mean(0)).square().sum()
    metric = fed(R2(), prediction, y, size)
    assert metric.compute().item() == pytest.approx(expected.item(), abs=2e-4)
    metric.reset()
    assert fed(metric, y, y, size).compute() == 1
    metric.reset()
    assert fed(metric, b.mean(0).float().expand_as(y), y, size).compute().item() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("constant", [0.0, 0.1, 7.3, -1e6])
def test_r2_of_constant_targets_is_finite(constant: float) -> None:
    y = torch.full((33, 2), constant)
    assert fed(R2(), y, y, 5).compute() == 1
    assert fed(R2(), y + 1, y, 5).compute() == 0


def test_ranks_are_merged_as_they_are_gathered() -> None:
    """Reduction by None stacks the states of the ranks."""
    torch.manual_seed(0)
    y = torch.randn(30, 4) + torch.linspace(0, 3, 30).unsqueeze(-1)
    prediction = y + torch.randn_like(y)
    whole = fed(R2(), prediction, y, 30).compute()
    parts = [fed(R2(), prediction[i], y[i], 30) for i in (slice(0, 10), slice(10, 30))]
    merged = R2()
    for name in ("count", "mean", "spread", "residual"):
        setattr(merged, name, torch.stack([getattr(part, name) for part in parts]))
    torch.testing.assert_close(merged.compute(), whole)


def test_norm_deviation_averages_norms_before_it_takes_the_difference() -> None:
    """As published: norms 0.5 and 1.5 at one position cancel."""
    unit = torch.nn.functional.normalize(torch.randn(2, 3, 5), dim=-1)
    scale = torch.tensor([[0.5, 1.0, 2.0], [1.5, 1.0, 1.0]]).unsqueeze(-1)
    assert norm_deviation(unit * scale).item() == pytest.approx(0.5 / 3, abs=1e-6)
    assert norm_deviation(unit.bfloat16()).dtype == torch.float32


def test_a_rollout_slides_its_window() -> None:
    """A predictor that sums its window of three makes the Tribonacci numbers."""
    seen = []

    def predict(x: Tensor) -> Tensor:
        seen.append(x.shape)
        return x.cumsum(1)

    x = torch.tensor([1.0, 1.0, 2.0]).view(1, 3, 1)
    assert rollout(predict, x, 5).flatten().tolist() == [4, 7, 13, 24, 44]
    assert set(seen) == {(1, 3, 1)}


def test_the_mean_so_far_is_short_on_vectors_that_nothing_predicts() -> None:
    """Orthogonal vectors average to a norm of t^-½; echoes, and the rollout of one, keep theirs."""

    def mean(x: Tensor) -> Tensor:
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(-1, 1)

    short = 1 - sum(t**-0.5 for t in range(1, 5)) / 4
    echo = torch.eye(4)[:1].expand(2, 6, 4)
    assert float(norm_deviation(mean(torch.eye(4).expand(2, 4, 4)))) == pytest.approx(short, abs=1e-6)
    assert float(norm_deviation(mean(echo))) == pytest.approx(0, abs=1e-6)
    assert float(norm_deviation(rollout(mean, echo, 9))) == pytest.approx(0, abs=1e-6)
