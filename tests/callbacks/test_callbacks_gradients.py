import math
import warnings

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from app.callbacks import GradientNorms, read_diagnostics
from app.callbacks.gradients import _norms


class Spy(pl.Callback):
    """The gradients as they are when the optimizer is about to step."""

    def __init__(self):
        self.grads = {}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.grads[trainer.global_step] = {
            name: p.grad.double().clone() for name, p in pl_module.named_parameters()
        }


def rows(table, metric, layer=""):
    mask = (table["metric"] == metric) & (table["layer"] == layer)
    return dict(zip(table["step"][mask].tolist(), table["value"][mask].tolist(), strict=True))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_norms_are_those_of_the_whole_step_before_clipping(
    make_module, make_trainer, data, tmp_path, accumulate
):
    spy = Spy()
    trainer = make_trainer(
        [GradientNorms(), spy], max_steps=20, accumulate_grad_batches=accumulate, gradient_clip_val=1e-3
    )
    trainer.fit(make_module(), data)
    table = read_diagnostics(tmp_path)
    total = rows(table, "gradients/total_norm")
    assert list(total) == [0, 6, 13]
    for step, value in total.items():
        grads = spy.grads[step]
        expected = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        assert value > 1e-2
        first = float(grads["network.encoder.weight"].norm())
        last = float(grads["network.head.weight"].norm())
        np.testing.assert_allclose(rows(table, "gradients/weight_norm", "first")[step], first, rtol=1e-5)
        np.testing.assert_allclose(
            rows(table, "gradients/weight_ratio_first_last")[step], first / last, rtol=1e-5
        )


def test_all_layers_once_a_validation_at_the_step_they_were_measured(
    make_module, make_trainer, data, tmp_path
):
    spy = Spy()
    logger = TensorBoardLogger(tmp_path, name="run", version="v")
    make_trainer([GradientNorms(curves=3), spy], logger=logger, max_steps=24).fit(make_module(), data)
    table = read_diagnostics(tmp_path / "run" / "v")
    layers = ["encoder", "layers.000.linear", "layers.001.linear", "layers.002.linear", "head"]
    for layer in layers:
        found = rows(table, "gradients/weight_norm", f"network.{layer}")
        assert list(found) == [0, 6, 13, 20]  # six steps an epoch, a logging step every seven
        name = "network." + layer.replace(".00", ".") + ".weight"
        np.testing.assert_allclose(found[13], float(spy.grads[13][name].norm()), rtol=1e-5)
    events = EventAccumulator(str(tmp_path / "run" / "v"))
    events.Reload()
    shown = {tag for tag in events.Tags()["scalars"] if tag.startswith("gradients/weight_norm/network")}
    assert shown == {f"gradients/weight_norm/network.{layer}" for layer in (layers[0], layers[2], layers[4])}
    assert [tag for tag in events.Tags()["images"] if tag.startswith("figures")] == [
        "figures/weight_gradient_norm"
    ]


def test_true_norms_under_a_gradient_scaler(make_module, make_trainer, data, tmp_path):
    norms = {}
    for precision in ("32-true", "16-mixed"):
        folder = tmp_path / precision
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plugins = None
            if precision == "16-mixed":
                from lightning.pytorch.plugins import MixedPrecision

                scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
                plugins = [MixedPrecision("16-mixed", "cpu", scaler)]
            trainer = make_trainer([GradientNorms()], max_steps=1, plugins=plugins, default_root_dir=folder)
        torch.manual_seed(5)
        trainer.fit(make_module(), data)
        norms[precision] = rows(read_diagnostics(folder), "gradients/total_norm")[0]
    assert norms["16-mixed"] == pytest.approx(norms["32-true"], rel=0.02)


def test_frozen_shared_and_bias_parameters(make_module, make_trainer, data, tmp_path):
    module = make_module()
    module.network.encoder.requires_grad_(False)
    module.network.layers[2].linear.weight = module.network.layers[1].linear.weight
    make_trainer([GradientNorms()], max_steps=8).fit(module, data)
    layers = {str(layer) for layer in read_diagnostics(tmp_path)["layer"]} - {"", "first", "last"}
    assert layers == {"network.layers.000.linear", "network.layers.001.linear", "network.head"}


def test_no_logging_steps_no_records(make_module, make_trainer, data, tmp_path):
    make_trainer([GradientNorms()], max_steps=8, log_every_n_steps=0).fit(make_module(), data)
    with pytest.raises(FileNotFoundError, match="no diagnostics were recorded"):
        read_diagnostics(tmp_path)


def test_norms_of_every_kind_of_gradient():
    sparse = torch.sparse_coo_tensor([[0, 0]], torch.tensor([3.0, 1.0]), (4,))
    grads = [
        torch.full((4,), 3e4, dtype=torch.float16),
        torch.tensor([3 + 4j]),
        sparse,
    ]
    np.testing.assert_allclose(_norms(grads).tolist(), [6e4, 5, 4], rtol=1e-3)
    assert _norms([torch.tensor([1e200], dtype=torch.float64)]).item() == 1e200
