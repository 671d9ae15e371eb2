import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
import torchvision

from datamodules import MNIST, FashionMNIST
from datamodules.mnist import read_idx


def test_files_in_the_layout_are_read_without_a_network(tmp_path, write_mnist):
    for task, name in ((MNIST, "MNIST"), (FashionMNIST, "FashionMNIST")):
        write_mnist(tmp_path, name)
        data = task(str(tmp_path), batch_size=10, download=False, verify_checksums=False)
        assert tuple(data.input_shape) == (1, 28, 28)
        assert data.num_outputs == 10
        data.prepare_data()
        data.setup("fit")
        assert [len(data.train_set[0]), len(data.val_set[0])] == [54, 6]
        assert data.test_set is None
        x, y = data.train_set
        assert x.shape[1:] == (1, 28, 28)
        assert x.dtype == torch.uint8
        assert (x[:, 0, 3, 4] % 10).equal(y.to(torch.uint8))
        data.setup("test")
        assert data.test_set[0][:, 0, 0, 0].tolist() == list(range(21))


def test_the_test_files_stay_closed_until_the_test(tmp_path, write_mnist):
    folder = write_mnist(tmp_path)
    data = MNIST(str(tmp_path), download=False, verify_checksums=False)
    for file in folder.glob("t10k-*"):
        file.write_bytes(b"not to be read")
    data.prepare_data()
    data.setup("fit")
    data.setup("validate")
    for stage in ("test", "predict"):
        with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte is not an IDX file of unsigned bytes$"):
            data.setup(stage)


def test_other_files_need_the_checks_off(tmp_path, write_mnist):
    folder = write_mnist(tmp_path)
    data = MNIST(str(tmp_path), download=False)
    data.prepare_data()
    with pytest.raises(ValueError, match="set verify_checksums: false") as caught:
        data.setup("fit")
    assert str(caught.value).startswith(str(folder / "train-images-idx3-ubyte"))
    assert "\n" not in str(caught.value)


def test_missing_files_are_named_in_one_line(tmp_path, write_mnist):
    folder = write_mnist(tmp_path)
    (folder / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        MNIST(str(tmp_path), download=False).prepare_data()
    assert (
        str(caught.value)
        == f"MNIST is not there and download is off: put train-labels-idx1-ubyte into {folder}"
    )
    with pytest.raises(FileNotFoundError, match=f"^no data file {folder}/train-labels-idx1-ubyte$"):
        MNIST(str(tmp_path), verify_checksums=False).setup("fit")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "is not an IDX file of unsigned bytes"),
        ("train-images-idx3-ubyte", b"\x1f\x8b\x08\x00gzip", "is not an IDX file of unsigned bytes"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "is truncated or damaged"),
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02pixels",
            "needs 24 bytes, got 22$",
        ),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01p", "images must be 28 × 28"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x02\x00\x01", "must label 60 images"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x3c" + 60 * b"\x0a", "labels must lie in 0 … 9"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, write_mnist, file, content, message):
    folder = write_mnist(tmp_path)
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        MNIST(str(tmp_path), verify_checksums=False).setup("fit")
    assert str(folder / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_idx_files_of_any_rank(tmp_path):
    for shape in ((5,), (2, 3), (2, 3, 4)):
        values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
        header = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
        (tmp_path / "file").write_bytes(header + values.tobytes())
        assert read_idx(tmp_path / "file").equal(torch.from_numpy(values))


class Quiet(SimpleHTTPRequestHandler):
    cut: frozenset[str] = frozenset()

    def log_message(self, *arguments: object) -> None:
        pass

    def copyfile(self, source, outputfile) -> None:
        content = source.read()
        outputfile.write(content[: len(content) // 2] if self.path.strip("/") in self.cut else content)


@pytest.fixture
def server(tmp_path, write_mnist, monkeypatch):
    """Serves tiny files in place of the published ones, and counts on the checksums of the packed files."""
    packed = tmp_path / "served"
    packed.mkdir()
    resources, checksums = [], {}
    for file in sorted(write_mnist(tmp_path / "origin").iterdir()):
        content = gzip.compress(file.read_bytes())
        (packed / f"{file.name}.gz").write_bytes(content)
        resources.append((f"{file.name}.gz", hashlib.md5(content).hexdigest()))
        checksums[file.name] = hashlib.md5(file.read_bytes()).hexdigest()
    monkeypatch.setattr(Quiet, "cut", frozenset())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(packed)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", resources)
    monkeypatch.setattr(MNIST, "checksums", checksums)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_missing_files_are_downloaded_and_verified(tmp_path, server):
    root = tmp_path / "data"
    data = MNIST(str(root))
    data.prepare_data()
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert files == sorted(f"MNIST/raw/{file}" for file in MNIST.checksums)  # no archive, no part of a file
    data.setup()
    assert len(data.train_set[0]) + len(data.val_set[0]) == 60
    kept = (data.folder / "train-images-idx3-ubyte").stat().st_ino
    (data.folder / "t10k-labels-idx1-ubyte").unlink()
    data.prepare_data()
    assert (data.folder / "train-images-idx3-ubyte").stat().st_ino == kept
    MNIST(str(root)).setup()


def test_an_interrupted_download_leaves_nothing(tmp_path, server, monkeypatch):
    monkeypatch.setattr(Quiet, "cut", frozenset({"t10k-images-idx3-ubyte.gz"}))
    root = tmp_path / "data"
    with pytest.raises(
        ConnectionError, match=r"^cannot download MNIST \(no network\?\): put t10k-images"
    ) as caught:
        MNIST(str(root)).prepare_data()
    assert "\n" not in str(caught.value)
    assert str(root / "MNIST" / "raw") in str(caught.value)
    assert not [path for path in root.rglob("*") if path.is_file()]
    monkeypatch.setattr(Quiet, "cut", frozenset())
    MNIST(str(root)).prepare_data()
    MNIST(str(root)).setup()


def test_no_network_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    with pytest.raises(ConnectionError) as caught:
        MNIST(str(tmp_path)).prepare_data()
    files = ", ".join(MNIST.checksums)
    assert (
        str(caught.value)
        == f"cannot download MNIST (no network?): put {files} into {tmp_path / 'MNIST' / 'raw'}"
    )


def test_an_unwritable_root_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"^cannot store MNIST in .*: Not a directory$"):
        MNIST(str(tmp_path / "file")).prepare_data()
