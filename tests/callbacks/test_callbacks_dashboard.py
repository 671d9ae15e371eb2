"""One callback brings the dashboard: layout, guide, the run's row; also in a stranger's module."""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from torch import nn

import app
from app.callbacks import Dashboard, Diagnostics, GradientNorms, HealthRules, NonFiniteGuard
from app.callbacks.guide import guide
from app.callbacks.layout import LAYOUT
from app.protocols import Explained
from tests.processes import run_limited


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def row(folder):
    """Settings and final metrics in the sub-run of the HParams tab."""
    found = events(folder / "hparams")
    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    settings = {k: getattr(v, v.WhichOneof("kind")) for k, v in info.hparams.items()}
    return settings, {tag: found.Scalars(tag)[-1].value for tag in found.Tags()["scalars"]}


def test_it_brings_what_is_missing_and_nothing_twice(make_module, make_trainer, data, tmp_path):
    logger = TensorBoardLogger(tmp_path, name="run", version="v")
    own = GradientNorms(curves=2)
    trainer = make_trainer([Dashboard(), own], logger=logger, max_steps=7)
    trainer.fit(make_module(), data)
    trainer.fit(make_module(), data)
    kinds = [type(callback) for callback in trainer.callbacks]
    for kind in (Dashboard, Diagnostics, GradientNorms, HealthRules, NonFiniteGuard):
        assert kinds.count(kind) == 1
    assert own in trainer.callbacks


def test_layout_guide_and_row(make_module, make_trainer, data, tmp_path):
    logger = TensorBoardLogger(tmp_path, name="run", version="v", default_hp_metric=False)
    module = make_module()
    module.save_hyperparameters({"lr": 0.01, "name": "small", "sizes": [1], "inner": {"depth": 3}})
    trainer = make_trainer([Dashboard()], logger=logger, max_steps=7)
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    found = events(tmp_path / "run" / "v")
    (written,) = found.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(written.tensor_proto.string_val[0])
    assert [category.title for category in layout.category] == list(LAYOUT)
    (text,) = found.Tensors("guide/text_summary")
    assert b"`gradients/total_norm` | norm of the gradient" in text.tensor_proto.string_val[0]
    settings, metrics = row(tmp_path / "run" / "v")
    assert settings == {"lr": 0.01, "name": "small", "inner.depth": 3}
    assert set(metrics) == {"final/train/loss", "final/val/loss", "final/test/loss"}
    assert "hp_metric" not in found.Tags()["scalars"]


def explained():
    for package in (app,):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "__main__" in found.name or ".study" in found.name:
                continue
            for thing in vars(importlib.import_module(found.name)).values():
                if inspect.isclass(thing) and thing is not Explained and isinstance(thing, Explained):
                    yield thing


def test_every_metric_has_meaning_healthy_range_and_advice():
    classes = set(explained())
    assert len(classes) > 10
    for cls in classes:
        for metric, text in cls.METRICS.items():
            parts = text.split("; ", 2)
            assert len(parts) == 3, (cls, metric)
            assert parts[1].startswith("healthy"), (cls, metric)
            assert "\n" not in text


def test_the_guide_escapes_and_does_not_repeat():
    class Layer(nn.Module):
        METRICS: ClassVar = {"size": "largest |x|; healthy: below 1; above: scale"}

    text = guide([Layer(), Layer(), nn.ReLU()])
    assert text.splitlines()[2:] == [r"| `diagnostics/size` | largest \|x\| | below 1 | above: scale |"]
    assert guide([nn.ReLU()]) == ""


MINE = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from app.callbacks import Dashboard
from app.layers import ZPlaneLinear


class Mine(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.first = ZPlaneLinear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.first(x))

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x.prod(1, keepdim=True)), 16)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", callbacks=[Dashboard()], log_every_n_steps=1)
    trainer.fit(Mine(), loader, loader)
"""


def test_a_strangers_module_outside_of_the_project(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    code, output = run_limited([sys.executable, "mine.py"], 240, tmp_path)
    assert code == 0, output[-2000:]
    folder = tmp_path / "lightning_logs" / "version_0"
    found = events(folder)
    assert "custom_scalars__config__" in found.Tags()["tensors"]
    assert "diagnostics/radius/first" in found.Tags()["histograms"]
    assert {"figures/phasors"} <= set(found.Tags()["images"])
    assert {"diagnostics/bounded_fraction/mean", "gradients/total_norm"} <= set(found.Tags()["scalars"])
    assert "final/val/loss" in row(folder)[1]


def test_readme_shows_the_same_use():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "callbacks=[Dashboard()]" in readme


@pytest.mark.parametrize("given", [{}, {"settings": {"a": 1}}])
def test_no_logger_no_row(make_module, make_trainer, data, tmp_path, given):
    make_trainer([Dashboard(**given)], max_steps=6).fit(make_module(), data)
    assert [path.name for path in tmp_path.iterdir()] == ["diagnostics"]
