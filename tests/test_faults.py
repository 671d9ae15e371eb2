"""Faults of disks and files during a run: one line, nothing half written, what was there untouched."""

import ctypes
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from app.modules import Classification
from tests.processes import environment

QUIET = "--trainer.accelerator=cpu --trainer.enable_progress_bar=false --trainer.enable_model_summary=false"
FIT = (
    f"fit --config z_plane_digits {QUIET} --trainer.max_epochs=1 --model.init_args.network.init_args.depth=6"
)
DROP, DAC_OVERRIDE = 24, 1  # of prctl and of capabilities


@pytest.fixture
def place():
    """A folder that any user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def unprivileged() -> None:
    """Takes from root the right to write where permissions do not allow it; changes nothing for others."""
    ctypes.CDLL(None).prctl(DROP, DAC_OVERRIDE, 0, 0, 0)


def fit(place: Path, *options: str, before: Callable[[], object] | None = None) -> tuple[int, list[str]]:
    """Runs a fit; returns its code and what it said on stderr."""
    env = environment() | {"HOME": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-m", "app", *FIT.split(), *options], cwd=place, env=env, preexec_fn=before,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return result.returncode, result.stderr.splitlines()


def test_a_full_disk(place):
    assert fit(place) == (0, [])
    folder = place / "runs/z_plane_digits/version_0"
    before = {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
    room = min(len(content) for content in before.values()) - 1

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # as a disk that has no more

    code, lines = fit(place, "--ckpt_path=last", "--trainer.max_epochs=2", before=small)
    assert code == 1, lines
    (line,) = [text for text in lines if text.startswith("error: ")]
    assert "cannot be written: File too large; earlier ones are kept" in line
    assert {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()} == before
    code, lines = fit(place, "--ckpt_path=last", "--trainer.max_epochs=2")
    assert code == 0, lines
    assert torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 40


def test_a_folder_that_may_not_be_written(place):
    (place / "runs").mkdir()
    (place / "runs").chmod(0o555)
    code, lines = fit(place, before=unprivileged)
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0] == "error: the run folder runs/z_plane_digits cannot be made: Permission denied"
    assert not list((place / "runs").iterdir())


def test_a_run_folder_that_has_become_read_only(place):
    assert fit(place) == (0, [])
    folder = place / "runs/z_plane_digits/version_0"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    for path in (folder / "checkpoints", folder):
        path.chmod(0o555)
    code, lines = fit(place, "--ckpt_path=last", "--trainer.max_epochs=2", before=unprivileged)
    assert (code, len(lines)) == (2, 1), lines
    assert "cannot be written to" in lines[0]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_data_file_that_vanishes_during_the_run(run, workspace, write_mnist, monkeypatch):
    raw = write_mnist(workspace)

    def vanish(self) -> None:
        (raw / "t10k-images-idx3-ubyte").unlink()

    monkeypatch.setattr(Classification, "on_train_end", vanish, raising=False)
    code, _, err = run(
        f"fit --config model/relu_shallow --config data/mnist {QUIET} --trainer.max_epochs=1 "
        "--data.init_args.root=. --data.init_args.verify_checksums=false --data.init_args.download=false "
        "--data.init_args.batch_size=10"
    )
    assert code == 1
    (line,) = [text for text in err.splitlines() if text.startswith("error: ")]
    assert "put t10k-images-idx3-ubyte into MNIST/raw" in line
    last = workspace / "runs/relu_shallow/version_0/checkpoints/last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] > 0
