"""Dashboard, environment, predictions, figures."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

import app
from app.callbacks import Dashboard, Diagnostics, Environment, GradientNorms, PredictionsWriter
from app.callbacks.figures import heat_map, rasterise, unit_discs
from app.callbacks.predictions import interleave


def test_the_layout_fits_the_tags_of_a_run(make_module, make_trainer, data, tmp_path):
    logger = TensorBoardLogger(tmp_path, name="run", version="v")
    make_trainer([Dashboard(), Diagnostics(), GradientNorms()], logger=logger, max_steps=12).fit(
        make_module(), data
    )
    events = EventAccumulator(str(tmp_path / "run" / "v"))
    events.Reload()
    layout = layout_pb2.Layout()
    layout.ParseFromString(events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    assert [category.title for category in layout.category] == [
        "Health",
        "Z-Plane",
        "Sigma-Pi",
        "Residual operators",
        "Gradients by layer",
    ]
    tags = events.Tags()["scalars"]
    found = {
        chart.title: [tag for tag in tags for line in chart.multiline.tag if re.match(line, tag)]
        for category in layout.category
        for chart in category.chart
    }
    assert set(found["loss"]) == {"train/loss", "val/loss"}
    assert set(found["spectral norm"]) == {
        f"diagnostics/spectral_norm/{w}" for w in ("first", "mean", "last")
    }
    assert len(found["weight gradient norm"]) == 7
    assert set(found["gradient norm"]) == {
        "gradients/total_norm",
        "gradients/weight_norm/first",
        "gradients/weight_norm/last",
    }
    assert len(found["gradient ratio, first layer over last"]) == 2
    assert found["RMS radius"] == []


def test_environment(make_module, make_trainer, data, tmp_path, monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "11")
    make_trainer([Environment()]).validate(make_module(), data, verbose=False)
    found = json.loads((tmp_path / "environment.json").read_text())
    assert found["versions"]["torch"] == torch.__version__.split("+")[0]
    assert found["versions"]["app"] == app.__version__
    assert found["seeds"] == {"global": 11, "data": 7}
    assert found["hardware"]["ranks"] == 1
    assert found["git"] is None or re.fullmatch("[0-9a-f]{40}", found["git"]["commit"])
    assert [path.name for path in tmp_path.iterdir()] == ["environment.json"]


def test_predictions_are_in_order_and_exact(make_module, make_trainer, data, tmp_path):
    module = make_module().eval()
    make_trainer([PredictionsWriter()]).predict(module, data, return_predictions=False)
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["index", "y_0", "y_1", "y_2"]
    assert [int(row[0]) for row in rows[1:]] == list(range(66))
    written = torch.tensor([[float(value) for value in row[1:]] for row in rows[1:]])
    with torch.no_grad():
        expected = torch.cat([module(x) for x, _ in data.predict_dataloader()])
    assert torch.equal(written, expected)


def test_predictions_of_other_shapes_and_kinds(make_module, make_trainer, data, tmp_path):
    module = make_module()
    module.predict_step = lambda batch, batch_idx: (
        module(batch[0]).unflatten(1, (3, 1)).expand(-1, 3, 2).bfloat16()
    )
    make_trainer([PredictionsWriter()]).predict(module, data)
    assert (tmp_path / "predictions.csv").read_text().splitlines()[0] == "index,y_0,y_1,y_2,y_3,y_4,y_5"
    module.predict_step = lambda batch, batch_idx: module(batch[0]).argmax(1)
    make_trainer([PredictionsWriter()]).predict(module, data)
    first = (tmp_path / "predictions.csv").read_text().splitlines()
    assert first[0] == "index,y_0"
    assert first[1] in ("0,0", "0,1", "0,2")
    module.predict_step = lambda batch, batch_idx: {"y": batch[0]}
    with pytest.raises(TypeError, match="predict_step must return a tensor"):
        make_trainer([PredictionsWriter()]).predict(module, data)


@pytest.mark.parametrize(("samples", "ranks"), [(7, 2), (6, 2), (2, 3), (1, 1), (0, 2)])
def test_interleave_inverts_dealing(samples, ranks):
    whole = torch.arange(2 * samples).reshape(samples, 2)
    assert torch.equal(interleave([whole[rank::ranks] for rank in range(ranks)]), whole)


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 2), np.float32),
        np.full((4, 2), np.nan, np.float32),
        np.random.default_rng(0).normal(size=(90, 2)),
    ],
)
def test_unit_discs_of_anything(points):
    figure = unit_discs("phasors", {"a": points, "b": np.float32([[0.5, 0.5], [2.0, 0.0], [np.inf, 0.0]])})
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[1] == "50% on or beyond the circle, 1 not finite"
    image = rasterise(figure)
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert image.std() > 1


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [np.nan, 0.0, -1.0, 1.0, np.inf])
def test_heat_maps_of_anything(values, log):
    layers = [f"layers.{index:03d}" for index in range(40)]
    figure = heat_map("x", layers, [0, 1], np.full((40, 2), values, np.float32), log)
    assert isinstance(figure, Figure)
    assert rasterise(figure).ndim == 3
