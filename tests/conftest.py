"""What the tests of every part use: the command line in process, and tiny data files."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.__main__ import main


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_mnist():
    """Writes tiny IDX files as torchvision lays them; image i is filled with i, its label is i mod 10."""

    def write(root: Path, name: str = "MNIST", train: int = 60, test: int = 21) -> Path:
        folder = root / name / "raw"
        folder.mkdir(parents=True)
        for part, count in (("train", train), ("t10k", test)):
            numbers = np.arange(count)
            images = np.broadcast_to(numbers[:, None, None], (count, 28, 28))
            (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(numbers % 10))
        return folder

    return write


@pytest.fixture
def write_cifar():
    """Writes tiny pickles as torchvision lays them."""

    def write(root: Path, classes: int = 10, count: int = 20, protocol: int = 2) -> Path:
        folder = root / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
        folder.mkdir(parents=True)
        trained = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
        tested = ["test_batch"] if classes == 10 else ["test"]
        key = "labels" if classes == 10 else "fine_labels"
        rng = np.random.default_rng(0)
        for file in (*trained, *tested):
            n = count if file in trained else count + 1
            entry = {
                "data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
                key: [i * classes // n for i in range(n)],
                "batch_label": file,
            }
            (folder / file).write_bytes(pickle.dumps(entry, protocol=protocol))
        return folder

    return write


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str, str]]:
    """Runs a command line in process, in an empty folder; returns exit code, output and errors."""

    def call(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(line.split())
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(autouse=True)
def _no_logging_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's log handler keeps the stream that pytest has captured and closed."""
    monkeypatch.setattr("logging.raiseExceptions", False)
