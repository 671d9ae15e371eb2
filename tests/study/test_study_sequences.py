"""Whole networks before and early in training, with known answers."""

import pytest
import torch
from torch import nn

from app.networks.published import PublishedDDL
from app.study.sequences import energy, future, gradient_norm, gradients, networks, start, watch_strength

SEE = {"published_edelta", "published_ddl", "published_edelta_stream"}


def test_only_what_averages_over_the_sequence_sees_the_future() -> None:
    rows = future(1, time=8, dim=4, last=2)
    assert set(rows) == set(networks(8, 4, 1, 32))
    for name, row in rows.items():
        assert (row["moved"] > 1e-3) == (name in SEE), name
        assert row["moved"] > 0 or name not in SEE, name
        if name not in SEE:
            assert row["moved"] == 0, name


def test_energy_of_skip_paths_before_training() -> None:
    rows = start(1, "datamodules.Stability", depth=2, width=32, batch=4)
    for name in ("published_gpt", "gpt", "cayley", "reflection"):
        assert rows[name]["energy_2"] == pytest.approx(1, abs=1e-4), name
    for name in ("published_edelta", "edelta"):
        assert 0 < rows[name]["energy_2"] < rows[name]["energy_1"] < 0.9, name
    assert rows["edelta_bias_1.5"]["energy_2"] > rows["edelta"]["energy_2"]
    assert rows["published_edelta"]["gradient"] > 10 * rows["published_gpt"]["gradient"]


def test_energy_leaves_the_network_as_it_is() -> None:
    network = networks(8, 4, 1, 32)["published_edelta"]()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    energy(network, torch.randn(2, 8, 4))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_gradient_norm_is_over_all_parameters() -> None:
    layer = nn.Linear(1, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[3.0]]), torch.tensor([4.0])
    assert gradient_norm(layer) == pytest.approx(5)


def test_strength_is_seen_in_published_ddl() -> None:
    network = PublishedDDL((8, 4), 4, depth=1, width=32)
    seen = watch_strength(network)
    network(torch.randn(2, 8, 4))
    assert [tuple(one.shape) for one in seen] == [(2, 1, 1)] * 2
    assert all(((one > 0) & (one < 2)).all() for one in seen)


def test_gradients_early_in_training() -> None:
    rows = gradients(
        1,
        "datamodules.Stability",
        {"time": 8, "dim": 4, "train_samples": 32},
        steps=45,
        depth=1,
        width=16,
        only=("published_gpt", "published_ddl"),
    )
    assert set(rows["published_gpt"]) == {"median", "largest", "spikes"}
    assert -1 <= rows["published_ddl"]["follows_beta"] <= 1
    for row in rows.values():
        assert row["spikes"] >= 1
        assert row["largest"] >= row["median"] > 0
