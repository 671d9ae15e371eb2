import math

import numpy as np
import pytest
from lightning.pytorch.loggers import CSVLogger

from app.callbacks import Diagnostics, GradientNorms, read_diagnostics
from app.callbacks.table import COLUMNS, append_rows, rewind_rows


def row(step, metric="diagnostics/a", stage="fit", value=1.0):
    return (step, 0, stage, metric, "layer", "", value)


def test_round_trip(tmp_path):
    path = tmp_path / "diagnostics" / "scalars.csv"
    append_rows(path, [row(1, value=math.nan), row(2, value=math.inf)])
    append_rows(path, [row(3, value=0.1)])
    table = read_diagnostics(tmp_path)
    assert tuple(table) == COLUMNS
    np.testing.assert_array_equal(table["value"], [math.nan, math.inf, 0.1])
    assert table["step"].dtype == np.int64
    assert table["layer"].tolist() == ["layer"] * 3
    np.testing.assert_array_equal(read_diagnostics(path.parent)["step"], table["step"])


def test_a_half_written_last_row_is_left_out_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "scalars.csv"
    append_rows(path, [row(1), row(2)])
    path.write_bytes(path.read_bytes()[:-7])
    assert read_diagnostics(tmp_path)["step"].tolist() == [1]
    append_rows(path, [row(3)])
    assert read_diagnostics(tmp_path)["step"].tolist() == [1, 3]


def test_an_empty_table_has_typed_columns(tmp_path):
    append_rows(tmp_path / "scalars.csv", [])
    assert read_diagnostics(tmp_path)["value"].dtype == np.float64


def test_rewind_keeps_what_was_recorded_up_to_the_step(tmp_path):
    path = tmp_path / "scalars.csv"
    append_rows(path, [row(0), row(4), row(4, "gradients/total_norm"), row(5), row(9, stage="test")])
    rewind_rows(path, 4)
    table = read_diagnostics(tmp_path)
    assert table["step"].tolist() == [0, 4, 9]
    assert "gradients/total_norm" not in table["metric"]
    rewind_rows(path, 0)
    assert read_diagnostics(tmp_path)["step"].tolist() == [9]


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
    keys = list(zip(*(table[name].tolist() for name in COLUMNS[:-1]), strict=True))
    assert len(keys) == len(set(keys))
    norms = table["step"][
        (table["metric"] == "diagnostics/spectral_norm") & (table["layer"] == "network.layers.001")
    ]
    assert norms.tolist() == [0, 6, 12, 18, 24]
    assert table["step"][table["metric"] == "gradients/total_norm"].tolist() == [0, 6, 13, 20]
