"""The command line on two processes."""

import csv
import sys

import pytest
import torch

from tests.processes import run_limited


@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_ranks_make_one_run(tmp_path, launcher):
    start = [sys.executable, "-m"]
    if launcher == "torchrun":
        start += ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    fit = [
        *start, "app", "fit", "--config", "z_plane_digits", "--trainer.max_epochs=2",
        "--trainer.accelerator=cpu", "--trainer.devices=2", "--trainer.strategy=ddp",
        "--trainer.enable_progress_bar=false",
        "--model.init_args.network.init_args.depth=3", "--model.init_args.network.init_args.width=16",
    ]  # fmt: skip
    code, output = run_limited(fit, 240, tmp_path)
    assert code == 0, output[-3000:]
    experiment = tmp_path / "runs/z_plane_digits"
    assert [path.name for path in experiment.iterdir()] == ["version_0"]
    folder = experiment / "version_0"
    for name in ("config.yaml", "environment.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt"):
        assert (folder / name).is_file(), name
    with (folder / "metrics.csv").open() as file:
        accuracy = [float(row["test/acc"]) for row in csv.DictReader(file) if row["test/acc"]]
    # Of 359 images, each once: a padded one would make it a multiple of 1/360.
    assert accuracy[0] * 359 == pytest.approx(round(accuracy[0] * 359), abs=1e-3)
    assert torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 40
