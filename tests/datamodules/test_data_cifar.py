import os
import pickle

import pytest
import torch
import torchvision

from datamodules import CIFAR10, CIFAR100


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(("task", "classes"), [(CIFAR10, 10), (CIFAR100, 100)])
def test_files_in_the_layout_are_read_without_a_network(tmp_path, write_cifar, task, classes, protocol):
    folder = write_cifar(tmp_path, classes, count=200 if classes == 100 else 20, protocol=protocol)
    data = task(str(tmp_path), batch_size=16, download=False, verify_checksums=False)
    assert tuple(data.input_shape) == (3, 32, 32)
    assert data.num_outputs == classes
    data.prepare_data()
    data.setup("fit")
    assert data.test_set is None
    count = 100 if classes == 10 else 200
    assert [len(data.train_set[0]), len(data.val_set[0])] == [count * 9 // 10, count // 10]
    data.setup("test")
    entry = pickle.loads((folder / ("test_batch" if classes == 10 else "test")).read_bytes())
    assert data.test_set[0].equal(torch.from_numpy(entry["data"]).view(-1, 3, 32, 32))
    assert data.test_set[1].tolist() == entry["labels" if classes == 10 else "fine_labels"]


def test_training_batches_are_augmented_on_their_way(tmp_path, write_cifar, one_of):
    write_cifar(tmp_path)
    data = CIFAR10(str(tmp_path), batch_size=30, verify_checksums=False)
    data.trainer = one_of(0, 1, training=True)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    x, y = data.on_after_batch_transfer(batch, 0)
    assert x.shape == (30, 3, 32, 32)
    assert x.dtype == torch.float32
    assert y.equal(batch[1])
    assert not x.equal(data.scaled(batch[0]))
    data.trainer = one_of(0, 1)
    assert data.on_after_batch_transfer(batch, 0)[0].equal(data.scaled(batch[0]))


def test_other_files_need_the_checks_off(tmp_path, write_cifar):
    write_cifar(tmp_path)
    data = CIFAR10(str(tmp_path))
    data.prepare_data()
    with pytest.raises(ValueError, match="data_batch_1 is truncated or not the original file"):
        data.setup("fit")


def test_the_test_file_stays_closed_until_the_test(tmp_path, write_cifar):
    folder = write_cifar(tmp_path)
    (folder / "test_batch").write_bytes(b"not to be read")
    data = CIFAR10(str(tmp_path), verify_checksums=False)
    data.prepare_data()
    data.setup("fit")
    with pytest.raises(ValueError, match="test_batch is truncated or no file of CIFAR10"):
        data.setup("test")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02}q\x00(X",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": 3, "labels": [1]}),
        pickle.dumps({"data": Evil(), "labels": []}),
    ],
)
def test_a_damaged_or_foreign_file_is_named_in_one_line(tmp_path, write_cifar, monkeypatch, content):
    folder = write_cifar(tmp_path)
    (folder / "data_batch_3").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="data_batch_3") as caught:
        CIFAR10(str(tmp_path), verify_checksums=False).setup("fit")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_a_truncated_file_is_named(tmp_path, write_cifar):
    folder = write_cifar(tmp_path)
    content = (folder / "data_batch_5").read_bytes()
    for length in (1, len(content) // 2, len(content) - 1):
        (folder / "data_batch_5").write_bytes(content[:length])
        with pytest.raises(ValueError, match="data_batch_5 is truncated"):
            CIFAR10(str(tmp_path), verify_checksums=False).setup("fit")


def test_a_label_out_of_range_is_refused(tmp_path, write_cifar):
    folder = write_cifar(tmp_path)
    entry = pickle.loads((folder / "data_batch_1").read_bytes())
    entry["labels"][0] = 10
    (folder / "data_batch_1").write_bytes(pickle.dumps(entry))
    with pytest.raises(ValueError, match=r"labels must lie in 0 … 9 in .*data_batch_1, got 10$"):
        CIFAR10(str(tmp_path), verify_checksums=False).setup("fit")


def test_missing_files_without_a_network_are_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    with pytest.raises(FileNotFoundError) as caught:
        CIFAR100(str(tmp_path), download=False).prepare_data()
    assert str(caught.value) == f"CIFAR100 is not there and download is off: put train, test into {folder}"
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "url", "http://127.0.0.1:9/cifar-100-python.tar.gz")
    with pytest.raises(ConnectionError) as caught:
        CIFAR100(str(tmp_path)).prepare_data()
    assert str(caught.value) == f"cannot download CIFAR100 (no network?): put train, test into {folder}"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
