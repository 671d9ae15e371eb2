"""Signals: the run ends in good order, with a checkpoint, flushed logs and the code that shells expect."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from app.modules import Classification
from tests.fingerprints import fingerprint
from tests.processes import environment

SMALL = "--model.init_args.network.init_args.depth=3 --model.init_args.network.init_args.width=16"
QUIET = "--trainer.accelerator=cpu --trainer.enable_progress_bar=false --trainer.enable_model_summary=false"
FIT = f"fit --config z_plane_digits {QUIET} {SMALL} --trainer.max_epochs=2"


def interrupt(monkeypatch, signum: int, step: str, times: int) -> None:
    """Sends a signal to this process when a step of the module is called the given time."""
    whole, calls = getattr(Classification, step), 0

    def signalled(self, *args):
        nonlocal calls
        calls += 1
        if calls == times:
            os.kill(os.getpid(), signum)
        return whole(self, *args)

    monkeypatch.setattr(Classification, step, signalled)


@pytest.mark.parametrize(
    ("signum", "code", "step", "times", "reached"),
    [
        (signal.SIGTERM, 143, "training_step", 26, 26),
        (signal.SIGINT, 130, "training_step", 3, 3),
        (signal.SIGTERM, 143, "validation_step", 4, 20),
        (signal.SIGINT, 130, "training_step", 40, 40),
    ],
)
def test_a_signal_ends_a_fit_with_a_checkpoint(
    run, workspace, monkeypatch, signum, code, step, times, reached
):
    assert run(f"{FIT} --experiment=whole")[0] == 0
    with monkeypatch.context() as patch:
        interrupt(patch, signum, step, times)
        found, _, err = run(f"{FIT} --experiment=cut")
    assert found == code, err
    (line,) = [text for text in err.splitlines() if text.startswith("error: ")]
    assert line == f"error: interrupted by {signum.name} at step {reached}: go on with --ckpt_path last"
    folder = workspace / "runs/cut/version_0"
    assert torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"] == reached
    code, _, err = run(f"{FIT} --experiment=cut --ckpt_path=last")
    assert code == 0, err
    assert fingerprint(folder) == fingerprint(workspace / "runs/whole/version_0")


@pytest.fixture
def run_signalled_twice(run, monkeypatch):
    """Runs a fit that gets a signal twice in its first step; returns the exit code and stderr."""

    def call(number: signal.Signals) -> tuple[int, str]:
        whole = Classification.training_step

        def signalled(self, *args):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            return whole(self, *args)

        monkeypatch.setattr(Classification, "training_step", signalled)
        code, _, err = run(FIT)
        return code, err

    return call


def test_sigterm_sent_twice_is_sent_once(run_signalled_twice, workspace):
    code, err = run_signalled_twice(signal.SIGTERM)
    assert code == 143
    assert "interrupted by SIGTERM at step 1: go on" in err
    assert (workspace / "runs/z_plane_digits/version_0/checkpoints/last.ckpt").is_file()


def test_a_second_ctrl_c_ends_it_at_once(run_signalled_twice):
    code, err = run_signalled_twice(signal.SIGINT)
    assert code == 130
    assert "twice" in err


@pytest.mark.parametrize("command", ["test", "validate", "predict"])
def test_a_signal_ends_an_evaluation_at_once(run, workspace, monkeypatch, command):
    assert run(f"{FIT} --trainer.max_epochs=1")[0] == 0
    step = {"validate": "validation_step"}.get(command, f"{command}_step")
    interrupt(monkeypatch, signal.SIGTERM, step, 1)
    code, _, err = run(f"{command} --config z_plane_digits {QUIET} {SMALL} --ckpt_path best")
    assert code == 143, err
    assert "error: interrupted by SIGTERM" in err


def test_slurm_asks_for_the_job_again(tmp_path):
    """SLURM's signal, with a stand-in for scontrol that writes down what it is asked."""
    (tmp_path / "bin").mkdir()
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)
    env = environment() | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "SLURM_NTASKS": "1", "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "fit", "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
    }  # fmt: skip
    command = [sys.executable, "-m", "app", *FIT.split(), "--trainer.max_epochs=500"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "runs/z_plane_digits/version_0"
    wait_for(folder / "metrics.csv", process)
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGUSR1, errors
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    assert torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"] > 0
    assert "error: interrupted by SIGUSR1" in errors


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.is_file():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
