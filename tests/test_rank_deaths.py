"""One of two ranks dies: the run ends soon, with one message that names it, and a checkpoint."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.processes import environment

FIT = (
    "fit --config z_plane_digits --trainer.accelerator=cpu --trainer.devices=2 --trainer.strategy=ddp "
    "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false --trainer.max_epochs=500 "
    "--checkpoint.last_interval=0.2 "
    "--model.init_args.network.init_args.depth=3 --model.init_args.network.init_args.width=16"
)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"app" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.fixture
def running(tmp_path):
    """Two ranks in the midst of a fit: the first process, and where its checkpoint lies."""
    last = tmp_path / "runs/z_plane_digits/version_0/checkpoints/last.ckpt"
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", *FIT.split()], cwd=tmp_path, env=environment(),
            stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 150
        while not last.is_file() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert last.is_file(), (tmp_path / "errors").read_text()
        yield process, last
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def lines(folder: Path) -> list[str]:
    return [text for text in (folder / "errors").read_text().splitlines() if text.startswith("error: ")]


def test_the_other_rank_is_killed(running, tmp_path):
    process, last = running
    began = time.monotonic()
    os.kill(children(process.pid)[0], signal.SIGKILL)
    assert process.wait(60) == 1
    assert time.monotonic() - began < 60
    assert lines(tmp_path) == ["error: rank 1 was killed by SIGKILL; the last checkpoint is kept"]
    assert torch.load(last, weights_only=True)["global_step"] > 0


def test_the_first_rank_is_killed(running, tmp_path):
    process, last = running
    other = children(process.pid)[0]
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{other}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{other}").exists()
    (line,) = lines(tmp_path)
    assert line.startswith("error: rank 0 has died; rank 1: ")
    assert torch.load(last, weights_only=True)["global_step"] > 0


def test_a_signal_to_the_first_rank_ends_both_with_one_checkpoint(running, tmp_path):
    process, last = running
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    (line,) = lines(tmp_path)
    state = torch.load(last, weights_only=True)
    assert f"interrupted by SIGTERM at step {state['global_step']}:" in line
    assert len(state["resumption"]["ranks"]) == 2
