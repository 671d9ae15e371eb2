from typing import ClassVar

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from app.modules import Classification, Constant
from app.modules.base import decay_groups, is_plain


class Gated(nn.Module):
    """A network with a matrix that must not be decayed, a constraint and a penalty."""

    no_decay: ClassVar[frozenset[str]] = frozenset({"gate"})

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.full((4, 4), 0.5))
        self.line = nn.Linear(4, 3)
        self.penalties = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x @ self.gate)

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.penalties += 1
        return self(x), 1000 * self.line.bias.square().sum()

    def constrain(self) -> None:
        with torch.no_grad():
            self.gate.clamp_(0.4, 0.6)


def data(samples: int = 32) -> DataLoader:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(-1)), 8)


def trainer(tmp_path, **settings) -> pl.Trainer:
    defaults = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    return pl.Trainer(default_root_dir=tmp_path, enable_model_summary=False, **{**defaults, **settings})


def module(network: nn.Module, **settings) -> Classification:
    return Classification(
        network, 3, optimizer=lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5), **settings
    )


def test_decay_spares_vectors_and_what_the_network_names():
    network = Gated()
    decayed, undecayed = decay_groups(network)
    assert [id(p) for p in decayed["params"]] == [id(network.line.weight)]
    assert {id(p) for p in undecayed["params"]} == {id(network.gate), id(network.line.bias)}
    assert undecayed["weight_decay"] == 0
    assert "weight_decay" not in decayed


def test_shared_and_frozen_parameters_are_counted_once_and_never():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    network[1].bias.requires_grad_(False)
    groups = decay_groups(network)
    assert sum(len(group["params"]) for group in groups) == 2


def test_constraint_and_penalty_take_part_in_every_step(tmp_path):
    network = Gated()
    fitted = module(network, schedule=Constant)
    trainer(tmp_path).fit(fitted, data())
    assert network.penalties == 8
    assert network.gate.min() >= 0.4
    assert network.gate.max() <= 0.6
    assert not torch.equal(network.gate, torch.full((4, 4), 0.5))
    # The weight of the penalty is such that without it the bias would be far larger.
    assert network.line.bias.abs().max() < 0.3


def test_a_constraint_is_applied_once_an_optimizer_step_under_accumulation(tmp_path):
    network = Gated()
    calls = []
    network.constrain = lambda: calls.append(1)
    trainer(tmp_path, accumulate_grad_batches=2, max_epochs=1).fit(module(network), data())
    assert len(calls) == 2


def test_the_schedule_knows_the_number_of_steps(tmp_path):
    totals = []

    def schedule(optimizer, total):
        totals.append(total)
        return Constant(optimizer, total)

    trainer(tmp_path, max_epochs=3, accumulate_grad_batches=2).fit(module(Gated(), schedule=schedule), data())
    assert totals == [6]


def test_an_endless_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"set trainer.max_epochs"):
        trainer(tmp_path, max_epochs=-1).fit(module(Gated()), data())


def test_checkpoints_of_a_module_made_in_python_load_without_pickle(tmp_path):
    fitted = module(Gated())
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(fitted, data())
    fit.save_checkpoint(tmp_path / "x.ckpt")
    state = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert "network" not in state["hyper_parameters"]
    assert state["hyper_parameters"]["num_classes"] == 3
    again = Classification.load_from_checkpoint(tmp_path / "x.ckpt", network=Gated(), weights_only=True)
    assert torch.equal(again.network.gate, fitted.network.gate)


@pytest.mark.parametrize("value", [None, 1, "a", [1, (2.0,)], {"a": {"b": [True]}}])
def test_plain_data(value):
    assert is_plain(value)


@pytest.mark.parametrize("value", [nn.ReLU(), {"a": [nn.ReLU()]}, {1: 2}, torch.zeros(1), len])
def test_not_plain_data(value):
    assert not is_plain(value)
