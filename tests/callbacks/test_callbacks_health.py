"""Each health rule on a run that has the fault, and all of them on runs that have none."""

import warnings

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

from app import networks
from app.callbacks import (
    Diagnostics,
    GradientNorms,
    HealthRules,
    NonFiniteError,
    NonFiniteGuard,
    read_diagnostics,
)
from app.modules import Classification, Constant, Regression
from datamodules import Digits, Gyroscope
from datamodules.products import PairProduct
from tests.callbacks.families import FAMILIES

BEGINNINGS = (
    "silent collapse",
    "dead or saturated branch",
    "gate stuck",
    "orthogonality lost",
    "exploding or vanishing gradient",
)


def told(trainer, module, data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, data)
    return [str(w.message) for w in caught if str(w.message).startswith(BEGINNINGS)]


class At(pl.Callback):
    """Breaks something when a step is reached."""

    def __init__(self, step, damage):
        self.step, self.damage = step, damage

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            with torch.no_grad():
                self.damage(pl_module.network)


def still(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def plane(depth=6):
    network = networks.ZPlaneMLP((1, 8, 8), 10, depth=depth, width=32)
    return Classification(network, 10, optimizer=still, schedule=Constant), Digits(batch_size=128)


def collapse(network):
    """All states on one phasor, and a path too narrow for a gradient."""
    for layer in network.layers:
        layer.linear.weight.mul_(0.01)
        layer.linear.bias.fill_(0.7)


def grown(network):
    network.layers[2].linear.weight.mul_(3)


def narrow(network):
    for layer in network.layers:
        layer.linear.weight.mul_(0.03)
        layer.linear.bias.fill_(0.3)  # states live on, and with them the last layer's gradient


def wide(network):
    for layer in network.layers:
        layer.linear.weight.mul_(30)


def dead(network):
    network.layers[1].linear.bias.fill_(-1e3)


def saturated(network):
    network.layers[1].pi_weight_raw.fill_(1e4)


def relu():
    network = networks.ReLUMLP((1, 8, 8), 10, depth=4, width=32)
    return Classification(network, 10, optimizer=still, schedule=Constant), Digits(batch_size=128)


def linear():
    network = networks.LinearMLP((1, 8, 8), 10, depth=5, width=32)
    return Classification(network, 10, optimizer=still, schedule=Constant), Digits(batch_size=128)


def products():
    network = networks.SigmaPiMLP((4,), 1, depth=2, width=16)
    data = PairProduct(train_samples=500, val_samples=100, batch_size=100)
    return Regression(network, optimizer=still, schedule=Constant), data


def gated():
    data = Gyroscope(time=12, dim=8, train_samples=64, val_samples=32, batch_size=32)
    network = networks.EDelta((12, 8), 8, depth=1, width=16, heads=2)
    return Regression(network, optimizer=still, schedule=Constant), data


FAULTS = {
    "collapse": (plane, collapse, 4, "silent collapse at step", "last layer"),
    "dead": (relu, dead, 4, "dead or saturated branch at step", "100% of the units do not depend"),
    "saturated": (products, saturated, 4, "dead or saturated branch at step", "network.layers.001"),
    "gate": (gated, lambda network: None, 14, "gate stuck at ½ at step", "network.trunk.steps.000"),
    "orthogonality": (plane, grown, 3, "orthogonality lost at step", "1 to 3 in network.layers.002"),
    "vanishing": (plane, narrow, 4, "exploding or vanishing gradient at step", "in the first layer"),
    "exploding": (linear, wide, 4, "exploding or vanishing gradient at step", "in the first layer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_once_in_one_line(make_trainer, tmp_path, fault):
    make, damage, epochs, beginning, layer = FAULTS[fault]
    torch.manual_seed(0)
    module, data = make()
    callbacks = [HealthRules(), Diagnostics(least_steps=0), GradientNorms(), At(4, damage)]
    trainer = make_trainer(
        callbacks, max_epochs=epochs, max_steps=-1, log_every_n_steps=1, limit_train_batches=5
    )
    texts = [text for text in told(trainer, module, data) if text.startswith(beginning)]
    (text,) = texts
    assert layer in text
    assert "What usually helps: " in text
    assert "\n" not in text
    assert any(name.startswith("warnings/") for name in read_diagnostics(tmp_path)["metric"])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_runs_are_silent(make_trainer, family, seed):
    torch.manual_seed(seed)
    module, data = FAMILIES[family]()
    callbacks = [HealthRules(), Diagnostics(figures_every=0), GradientNorms(), NonFiniteGuard()]
    trainer = make_trainer(callbacks, max_epochs=5, max_steps=-1, log_every_n_steps=2)
    assert told(trainer, module, data) == []


class Poisoned(PairProduct):
    def fit_data(self):
        train, (x, y) = super().fit_data()
        return train, (torch.where(torch.arange(len(x))[:, None] == 3, torch.nan, x), y)


def test_inputs_that_are_not_finite_end_the_run_with_the_layers_name(make_trainer):
    module, _ = products()
    data = Poisoned(train_samples=500, val_samples=100, batch_size=100)
    trainer = make_trainer([NonFiniteGuard(), Diagnostics()], max_steps=4)
    with pytest.raises(NonFiniteError, match=r"of the input of network.layers.000 is not finite at step"):
        trainer.fit(module, data)


class Told(nn.Module):
    """A layer that says of itself what is out of range."""

    def forward(self, x):
        return x

    def diagnostics(self, *inputs):
        nan = torch.tensor(torch.nan)
        return {"rotation_orthogonality": torch.tensor(self.error), "gamma_mean": nan, "ac_share": nan}


@pytest.mark.parametrize(("error", "expected"), [(2e-6, 0), (1e-2, 1), (float("nan"), 0)])
def test_an_operator_that_is_no_rotation(make_module, make_trainer, data, error, expected):
    module = make_module()
    module.network.dropout = Told()
    module.network.dropout.error = error
    texts = told(make_trainer([HealthRules(), Diagnostics()], max_steps=12), module, data)
    assert len(texts) == expected
    assert all("of the rotation is 1.0e-02 in network.dropout" in text for text in texts)
