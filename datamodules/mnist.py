"""MNIST and Fashion-MNIST, from the IDX files that torchvision downloads."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
import torchvision
from torch import Tensor

from datamodules.batches import Tensors
from datamodules.files import provide, read_file
from datamodules.images import InMemoryImages


class MNIST(InMemoryImages):
    """60,000 training and 10,000 test images of handwritten digits, 28 × 28 pixels.

    Reads ``root/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte``; nothing is downloaded if they are
    there.

    Args:
        root: the folder of all data sets.
        batch_size: images an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the validation split and the order of training images, ≥ 0.
        val_fraction: share of the training images held back for validation, in (0, 1).
        train_samples: train on no more than so many images, drawn in the proportions of the classes.
        normalise: subtract mean 0.1307 and divide by the standard deviation 0.3081 of the training pixels.
        download: fetch missing files.
        verify_checksums: refuse files that are not the published ones.

    Raises:
        ValueError: an argument is out of range, or a file is not what it should be.
        FileNotFoundError: files are missing and ``download`` is off.
        ConnectionError: they cannot be downloaded.

    Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998.
    """

    input_shape = (1, 28, 28)
    num_outputs = 10
    mean = (0.1307,)
    std = (0.3081,)
    published: ClassVar[type[torchvision.datasets.MNIST]] = torchvision.datasets.MNIST
    checksums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 128,
        seed: int = 0,
        val_fraction: float = 0.1,
        train_samples: int | None = None,
        normalise: bool = True,
        download: bool = True,
        verify_checksums: bool = True,
    ) -> None:
        super().__init__(batch_size, seed, val_fraction, train_samples, normalise)
        self.root = Path(root).expanduser()
        self.download = download
        self.verify_checksums = verify_checksums

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return self.root / self.published.__name__ / "raw"

    def prepare_data(self) -> None:
        """Downloads what is missing."""
        provide(self.published.__name__, self.folder, list(self.checksums), self.download, self._fetch)

    def training_images(self) -> tuple[Tensor, Tensor]:
        """Returns the official training images."""
        return self._read("train")

    def test_data(self) -> Tensors:
        """Returns the official test images."""
        return self._read("t10k")

    def _fetch(self, scratch: Path) -> Path:
        return Path(self.published(scratch, download=True).raw_folder)

    def _read(self, part: str) -> tuple[Tensor, Tensor]:
        files = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        images, labels = (
            read_idx(self.folder / file, self.checksums[file] if self.verify_checksums else None)
            for file in files
        )
        if images.shape[1:] != self.input_shape[1:]:
            raise ValueError(f"images must be 28 × 28 in {self.folder / files[0]}, got {tuple(images.shape)}")
        if labels.shape != images.shape[:1]:
            raise ValueError(
                f"{self.folder / files[1]} must label {len(images)} images, got {tuple(labels.shape)}"
            )
        if labels.numel() and labels.max() >= self.num_outputs:
            raise ValueError(f"labels must lie in 0 … 9 in {self.folder / files[1]}, got {int(labels.max())}")
        return images[:, None], labels.long()


class FashionMNIST(MNIST):
    """60,000 training and 10,000 test images of clothes, 28 × 28 pixels, in ten classes.

    Reads ``root/FashionMNIST/raw/``; the arguments and errors are those of ``MNIST``, the mean 0.2860 and the
    standard deviation 0.3530.

    Source: H. Xiao, K. Rasul, R. Vollgraf, arXiv:1708.07747.
    """

    mean = (0.2860,)
    std = (0.3530,)
    published = torchvision.datasets.FashionMNIST
    checksums: ClassVar[Mapping[str, str]] = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }


def read_idx(path: Path, md5: str | None = None) -> Tensor:
    """Reads an IDX file of unsigned bytes.

    The header is two zero bytes, the type 8 and the number of dimensions, then each dimension in four bytes,
    big-endian.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such file, or of another length or checksum than it should be.
    """
    content = read_file(path, md5)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} is truncated or damaged: it needs {start + math.prod(shape)} bytes, got {len(content)}"
        )
    # bytearray: a tensor over immutable bytes warns.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).view(shape)
