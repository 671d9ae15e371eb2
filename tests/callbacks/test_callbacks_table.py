import math

import numpy as np
import pyarrow as pa
import pytest
from lightning.pytorch.loggers import CSVLogger, Logger

from app.callbacks import Diagnostics, GradientNorms, read_diagnostics
from app.callbacks.table import FILE, SCHEMA, Row, Table


def row(step, metric="diagnostics/a", stage="fit", value=1.0, values=None):
    return Row(step, 0, stage, metric, "layer", value, values)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "diagnostics" / FILE


def test_round_trip_of_every_kind(tmp_path, path):
    table = Table(path)
    vector = np.array([1, math.nan, math.inf], np.float32)
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    table.append([row(1, value=math.nan), row(2, value=math.inf), row(2, value=None, values=vector)])
    table.append([row(3, value=None, values=matrix), row(3, value=None, values=np.zeros((0, 2)))])
    read = read_diagnostics(tmp_path)
    assert list(read) == SCHEMA.names
    np.testing.assert_array_equal(read["value"], [math.nan, math.inf, math.nan, math.nan, math.nan])
    assert read["step"].tolist() == [1, 2, 2, 3, 3]
    assert read["layer"].tolist() == ["layer"] * 5
    assert read["shape"].tolist() == [(), (), (3,), (2, 3), (0, 2)]
    assert read["values"][0] is None
    np.testing.assert_array_equal(read["values"][2], vector)
    np.testing.assert_array_equal(read["values"][3], matrix)
    assert read["values"][4].shape == (0, 2)
    assert read_diagnostics(path.parent)["step"].tolist() == [1, 2, 2, 3, 3]


def test_other_readers_of_the_format_read_it(path):
    table = Table(path)
    for step in range(3):
        table.append([row(step)])
    assert pa.ipc.open_stream(pa.memory_map(str(path))).read_all()["step"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("rest", [1, 7, 100])
def test_what_a_killed_process_left_half_written_is_passed_over_and_cut_off(tmp_path, path, rest):
    Table(path).append([row(1), row(2)])
    whole = path.stat().st_size
    Table(path).append([row(3)])
    path.write_bytes(path.read_bytes()[: whole + rest])
    assert read_diagnostics(tmp_path)["step"].tolist() == [1, 2]
    Table(path).append([row(4)])
    assert read_diagnostics(tmp_path)["step"].tolist() == [1, 2, 4]
    assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 3


def test_a_torn_schema_is_begun_anew(tmp_path, path):
    Table(path).append([row(1)])
    path.write_bytes(path.read_bytes()[:40])
    assert len(read_diagnostics(tmp_path)) == 0
    Table(path).append([row(2)])
    assert read_diagnostics(tmp_path)["step"].tolist() == [2]


def test_rewind_keeps_what_was_recorded_up_to_the_step(tmp_path, path):
    table = Table(path)
    table.append([row(0), row(4), row(4, "gradients/total_norm")])
    table.append([row(5), row(9, stage="test")])
    table.rewind(4)
    read = read_diagnostics(tmp_path)
    assert read["step"].tolist() == [0, 4, 9]
    assert "gradients/total_norm" not in set(read["metric"])
    table.append([row(6)])
    table.rewind(0)
    assert read_diagnostics(tmp_path)["step"].tolist() == [9]
    assert [p.name for p in path.parent.iterdir()] == [FILE]


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="no diagnostics were recorded in"):
        read_diagnostics(tmp_path)


def test_a_resumed_fit_has_every_step_once(make_module, make_trainer, data, tmp_path):
    def trainer(steps):
        logger = CSVLogger(tmp_path, name="run", version="v")
        return make_trainer([Diagnostics(), GradientNorms()], max_steps=steps, logger=logger)

    first = trainer(12)
    first.fit(make_module(), data)
    first.save_checkpoint(tmp_path / "at12.ckpt")
    trainer(30).fit(make_module(), data, ckpt_path=tmp_path / "at12.ckpt", weights_only=True)
    again = trainer(24)
    again.fit(make_module(), data, ckpt_path=tmp_path / "at12.ckpt", weights_only=True)
    table = read_diagnostics(tmp_path / "run" / "v")
    assert not table.duplicated(["step", "stage", "metric", "layer"]).any()
    norms = table["step"][
        (table["metric"] == "diagnostics/spectral_norm") & (table["layer"] == "network.layers.001")
    ]
    assert norms.tolist() == [0, 6, 12, 18, 24]
    assert table["step"][table["metric"] == "gradients/total_norm"].tolist() == [0, 6, 13, 20]


class Kept(Logger):
    """Any logger but TensorBoard's and the CSV one."""

    def __init__(self):
        super().__init__()
        self.lines = []

    name, version = "kept", 0

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, metrics))

    def log_hyperparams(self, *args, **kwargs):
        pass


def test_other_loggers_get_the_shown_scalars(make_module, make_trainer, data):
    kept = Kept()
    make_trainer([Diagnostics(), GradientNorms()], max_steps=7, logger=kept).fit(make_module(), data)
    names = {name for _, metrics in kept.lines for name in metrics}
    assert {"diagnostics/spectral_norm/mean", "gradients/total_norm", "train/loss"} <= names
    assert {step for step, metrics in kept.lines if "diagnostics/spectral_norm/mean" in metrics} == {0, 6}
