"""Probes of one operator, trained together."""

import pytest
import torch
from torch import nn

from app.networks.published import PublishedEDeltaProbe
from app.study.fitting import Recipe
from app.study.negation import ClosedForm, Few, alignment, gates, samples, together


def test_the_closed_form_is_the_published_probe() -> None:
    torch.manual_seed(0)
    published = PublishedEDeltaProbe((12,), 12)
    closed = ClosedForm((12,), 12)
    closed.load_state_dict(published.state_dict())
    x = torch.randn(5, 12)
    for probe in (published, closed):
        prediction, penalty = probe.with_penalty(x)
        (prediction.square() @ torch.arange(12.0) + penalty).sum().backward()
    torch.testing.assert_close(closed(x), published(x))
    for mine, theirs in zip(closed.parameters(), published.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_a_few_samples_are_each_used_as_often() -> None:
    x = torch.arange(20.0).unsqueeze(1)
    (drawn, targets), _ = Few(1, x, -x, 10).fit_data()
    assert len(drawn) == 1000
    assert torch.equal(targets, -drawn)
    assert drawn.unique(return_counts=True)[1].tolist() == [100] * 10
    with pytest.raises(ValueError, match="n must divide 1000 and be at most 20, got 30"):
        Few(1, x, x, 30)
    with pytest.raises(ValueError, match="n must divide 1000 and be at most 20, got 25"):
        Few(1, x, x, 25)


def test_alignment_is_one_for_the_answer_and_minus_one_for_its_opposite() -> None:
    x = torch.randn(10, 4)
    assert alignment(nn.Identity(), (x, x)) == pytest.approx(1)
    assert alignment(nn.Identity(), (x, -x)) == pytest.approx(-1)


def test_fits_together_are_those_alone() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    few = [Few(0, x, -x, n) for n in (10, 20)]
    recipe = Recipe(lr=0.1, weight_decay=0.0, steps=60, batch_size=16, final=1.0)

    def build() -> nn.Linear:
        return nn.Linear(3, 3, bias=False)

    both = together({"a": build, "b": build}, few, recipe)
    alone = together({"b": build}, few[1:], recipe)
    assert list(both) == ["a", "b"]
    for networks in both.values():
        for network in networks:
            torch.testing.assert_close(network.weight, -torch.eye(3), atol=0.2, rtol=0)
    torch.manual_seed(0)
    torch.testing.assert_close(alone["b"][0].weight, both["a"][1].weight, atol=0.2, rtol=0)


def test_samples_and_gates_say_what_they_promise() -> None:
    found = samples(
        1, "datamodules.Negation", counts=(10, 50), steps=2, only=["edelta_along_x", "published_ddl"]
    )
    row = found["negation"]["edelta_along_x"]
    assert set(row) == {"start_alignment", "parameters"} | {
        f"{metric}_{n}" for metric in ("alignment", "gamma") for n in (10, 50)
    }
    assert row["start_alignment"] > 0.1  # most of the answer
    assert found["negation"]["published_ddl"]["start_alignment"] < -0.9
    assert 0.5 < found["negation"]["published_ddl"]["beta_50"] < 1.5
    assert found["negation_samples"]["edelta_along_x_10"] == {"alignment": row["alignment_10"]}
    ended = gates(1, "datamodules.Negation", biases=(-1.5, 0.0), weights=(0.0, 0.5), steps=2)
    assert ended["anywhere_bias_0_penalty_0.5"]["gamma"] == pytest.approx(0.5, abs=0.04)
    assert ended["along_x_bias_-1.5_penalty_0"]["gamma"] == pytest.approx(0.18, abs=0.04)
