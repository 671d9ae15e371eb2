"""CIFAR-10 and CIFAR-100, from the pickles that torchvision downloads."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torchvision
from torch import Tensor

from datamodules.files import provide, read_file
from datamodules.images import InMemoryImages


class CIFAR10(InMemoryImages):
    """50,000 training and 10,000 test colour photographs, 32 × 32 pixels, in ten classes.

    Reads ``root/cifar-10-batches-py/{data_batch_1 … data_batch_5,test_batch}``; nothing is downloaded if they
    are there. Training images are padded by 4, cropped at random and mirrored at random, on the device.

    Args:
        root: the folder of all data sets.
        batch_size: images an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the validation split, the order and the augmentation of training images, ≥ 0.
        val_fraction: share of the training images held back for validation, in (0, 1).
        train_samples: train on no more than so many images, drawn in the proportions of the classes.
        normalise: subtract the mean and divide by the standard deviation of the training images, per colour.
        augment: crop and mirror training images.
        download: fetch missing files.
        verify_checksums: refuse files that are not the published ones.

    Raises:
        ValueError: an argument is out of range, or a file is not what it should be.
        FileNotFoundError: files are missing and ``download`` is off.
        ConnectionError: they cannot be downloaded.

    Source: A. Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """

    input_shape = (3, 32, 32)
    num_outputs = 10
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)
    padding = 4
    label_key: ClassVar[str] = "labels"
    published: ClassVar[type[torchvision.datasets.CIFAR10]] = torchvision.datasets.CIFAR10

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 128,
        seed: int = 0,
        val_fraction: float = 0.1,
        train_samples: int | None = None,
        normalise: bool = True,
        augment: bool = True,
        download: bool = True,
        verify_checksums: bool = True,
    ) -> None:
        super().__init__(batch_size, seed, val_fraction, train_samples, normalise, augment)
        self.root = Path(root).expanduser()
        self.download = download
        self.verify_checksums = verify_checksums

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return self.root / str(self.published.base_folder)

    def prepare_data(self) -> None:
        """Downloads what is missing."""
        files = [file for file, _ in (*self.published.train_list, *self.published.test_list)]
        provide(self.published.__name__, self.folder, files, self.download, self._fetch)

    def training_images(self) -> tuple[Tensor, Tensor]:
        """Returns the official training images."""
        return self._read(dict(self.published.train_list))

    def test_data(self) -> tuple[Tensor, Tensor]:
        """Returns the official test images."""
        return self._read(dict(self.published.test_list))

    def _fetch(self, scratch: Path) -> Path:
        self.published(scratch, download=True)
        return scratch / str(self.published.base_folder)

    def _read(self, files: Mapping[str, str]) -> tuple[Tensor, Tensor]:
        parts = [self._read_one(self.folder / file, md5) for file, md5 in files.items()]
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    def _read_one(self, path: Path, md5: str) -> tuple[Tensor, Tensor]:
        content = read_file(path, md5 if self.verify_checksums else None)
        try:
            entry = _Arrays(io.BytesIO(content), encoding="latin1").load()
            pixels, labels = np.asarray(entry["data"]), torch.tensor(entry[self.label_key], dtype=torch.int64)
        # A damaged pickle raises nearly anything: EOFError, UnicodeError, IndexError, MemoryError …
        except Exception as error:
            raise ValueError(
                f"{path} is truncated or no file of {self.published.__name__} ({type(error).__name__})"
            ) from error
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
            raise ValueError(
                f"images must be uint8 ({len(labels)}, 3072) in {path}, got {pixels.dtype} {pixels.shape}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < self.num_outputs:
            raise ValueError(
                f"labels must lie in 0 … {self.num_outputs - 1} in {path}, got {int(labels.max())}"
            )
        return torch.from_numpy(pixels).view(-1, *self.input_shape), labels


class CIFAR100(CIFAR10):
    """50,000 training and 10,000 test colour photographs, 32 × 32 pixels, in a hundred classes.

    Reads ``root/cifar-100-python/{train,test}``; the arguments, errors and source are those of ``CIFAR10``.
    """

    num_outputs = 100
    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)
    label_key = "fine_labels"
    published = torchvision.datasets.CIFAR100


class _Arrays(pickle.Unpickler):
    """Builds arrays and plain values only: a data file that is not the published one must not run code."""

    allowed: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.numeric", "_frombuffer"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        # The published files were written by a numpy that had its core under the first name.
        module = module.replace("numpy.core.", "numpy._core.")
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong into a data file")
        return super().find_class(module, name)
