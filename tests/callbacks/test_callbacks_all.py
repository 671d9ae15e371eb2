"""What holds for all callbacks together: they change nothing, and they work wherever they are put."""

import pytest
import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

import app.callbacks as callbacks
from app.callbacks import read_diagnostics


def everything():
    return [
        getattr(callbacks, name)() for name in callbacks.__all__ if name[0].isupper() and "Error" not in name
    ]


@pytest.mark.parametrize(
    "settings",
    [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}],
    ids=["plain", "accumulate", "bf16"],
)
def test_weights_are_bitwise_equal_with_and_without(make_module, make_trainer, data, tmp_path, settings):
    ends = []
    for chosen in ([], everything()):
        module = make_module()
        seed_everything(3, verbose=False)
        logger = TensorBoardLogger(tmp_path, name=f"run{len(ends)}") if chosen else False
        make_trainer(chosen, logger=logger, **settings).fit(module, data)
        ends.append((module.state_dict(), torch.rand(4)))
    for name, value in ends[0][0].items():
        assert torch.equal(value, ends[1][0][name]), name
    assert torch.equal(ends[0][1], ends[1][1])


LOGGERS = {
    "none": lambda path: False,
    "tensorboard": lambda path: TensorBoardLogger(path, name="run", version="v"),
    "csv": lambda path: CSVLogger(path, name="run", version="v"),
    "both": lambda path: [
        TensorBoardLogger(path, name="run", version="v"),
        CSVLogger(path, name="run", version="v"),
    ],
}


@pytest.mark.parametrize("loggers", LOGGERS)
@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_every_stage_with_every_logger(make_module, make_trainer, data, tmp_path, loggers, stage):
    trainer = make_trainer(everything(), logger=LOGGERS[loggers](tmp_path), max_steps=13)
    getattr(trainer, stage)(make_module(), datamodule=data)
    folder = tmp_path if loggers == "none" else tmp_path / "run" / "v"
    assert (folder / "environment.json").is_file()
    if stage == "predict":
        assert (folder / "predictions.csv").is_file()
        return
    table = read_diagnostics(folder)
    assert set(table["stage"]) == {stage}
    paths = {"network.layers.000", "network.layers.001", "network.layers.002"}
    assert set(table["layer"][table["metric"] == "diagnostics/spectral_norm"]) == paths
    assert ("gradients/total_norm" in set(table["metric"])) == (stage == "fit")
    assert ("diagnostics/activation_gradient_ratio" in set(table["metric"])) == (stage == "fit")
    if loggers in ("csv", "both") and stage == "fit":
        header = (folder / "metrics.csv").read_text().splitlines()[0]
        assert sorted(header.split(",")) == ["epoch", "step", "train/loss", "val/loss"]


def test_validation_without_inference_mode_and_without_sanity_check(
    make_module, make_trainer, data, tmp_path
):
    trainer = make_trainer(everything(), inference_mode=False, num_sanity_val_steps=0, max_steps=13)
    trainer.fit(make_module(), data)
    assert set(read_diagnostics(tmp_path)["step"]) == {0, 6, 12}


def test_fast_dev_run_leaves_nothing_behind(make_module, make_trainer, data, tmp_path):
    make_trainer(everything(), fast_dev_run=True).fit(make_module(), data)
    assert list(tmp_path.iterdir()) == []


def test_a_test_after_a_fit_stays_off_the_curves_but_is_in_the_table(
    make_module, make_trainer, data, tmp_path
):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = make_trainer(
        everything(), logger=TensorBoardLogger(tmp_path, name="run", version="v"), max_steps=13
    )
    module = make_module()
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    assert set(read_diagnostics(tmp_path / "run" / "v")["stage"]) == {"fit", "test"}
    events = EventAccumulator(str(tmp_path / "run" / "v"), size_guidance={"scalars": 0})
    events.Reload()
    steps = [event.step for event in events.Scalars("diagnostics/spectral_norm/mean")]
    assert steps == [0, 6, 12]
