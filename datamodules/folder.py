"""A user's own folder of images, one subfolder a class."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from datamodules.batches import Tensors
from datamodules.images import InMemoryImages
from datamodules.splits import fraction_of, stratified_split

ENDINGS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
SPLIT_SEED = 0


class ImageFolder(InMemoryImages):
    """Images in ``root/<class>/``, or in ``root/{train,val,test}/<class>/``.

    The classes are the subfolders in alphabetical order. Without a ``test`` folder, ``test_fraction`` of the
    images is kept for testing, the same ones for every seed; without a ``val`` folder, ``val_fraction`` of
    the remaining ones is drawn by the seed for validation. Both draws keep the proportions of the classes.
    Images are read once, turned as their camera says, cut to a square around the centre, and resized.

    Args:
        root: the folder.
        size: height and width of the resized images in pixels, ≥ 1.
        channels: 3 for colour, 1 for grey.
        batch_size: images an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the validation split and the order of training images, ≥ 0.
        val_fraction: share of the training images held back for validation, in (0, 1).
        test_fraction: share of all images kept for testing, in (0, 1).
        train_samples: train on no more than so many images, drawn in the proportions of the classes.
        normalise: subtract ``mean`` and divide by ``std``.
        mean: of the pixels scaled to [0, 1], one value or one for each channel.
        std: likewise, > 0.

    Raises:
        FileNotFoundError: there is no such folder, or no classes in it.
        ValueError: an argument is out of range, or an image cannot be read.
    """

    def __init__(
        self,
        root: str,
        size: int = 32,
        channels: int = 3,
        batch_size: int = 128,
        seed: int = 0,
        val_fraction: float = 0.1,
        test_fraction: float = 0.1,
        train_samples: int | None = None,
        normalise: bool = True,
        mean: Sequence[float] = (0.5,),
        std: Sequence[float] = (0.5,),
    ) -> None:
        super().__init__(batch_size, seed, val_fraction, train_samples, normalise)
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {channels}")
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
        if len(mean) not in (1, channels) or len(std) not in (1, channels):
            raise ValueError(f"mean and std must have 1 or {channels} values, got {len(mean)} and {len(std)}")
        if min(std) <= 0:
            raise ValueError(f"std must be positive, got {list(std)}")
        self.root = Path(root).expanduser()
        self.size = size
        self.test_fraction = test_fraction
        self.mean, self.std = tuple(mean), tuple(std)
        # A folder of images named train, without subfolders, is the class of the trains.
        self._is_split = (self.root / "train").is_dir() and any(
            p.is_dir() for p in (self.root / "train").iterdir()
        )
        self.classes = _subfolders(self._train_folder)
        self.input_shape = (channels, size, size)
        self.num_outputs = len(self.classes)

    @property
    def _train_folder(self) -> Path:
        return self.root / "train" if self._is_split else self.root

    def _has(self, part: str) -> bool:
        return self._is_split and (self.root / part).is_dir()

    def training_images(self) -> tuple[Tensor, Tensor]:
        """Returns the images that are not test images."""
        return self._read(*self._pool()[0])

    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Takes the validation images from their folder, or splits them off the training images."""
        if not self._has("val"):
            return super().fit_data()
        return self.limited(*self.training_images()), self._read(*self._list(self.root / "val"))

    def test_data(self) -> Tensors:
        """Returns the test images."""
        return self._read(*self._pool()[1])

    def _pool(self) -> tuple[tuple[list[Path], Tensor], tuple[list[Path], Tensor]]:
        """Lists the files and classes to train and validate on, and those to test on."""
        files, labels = self._list(self._train_folder)
        if self._has("test"):
            return (files, labels), self._list(self.root / "test")
        if len(files) < 3:
            raise ValueError(f"{self._train_folder} must have at least 3 images to split, got {len(files)}")
        parts = stratified_split(labels, fraction_of(len(files), self.test_fraction), SPLIT_SEED)
        rest, test = (([files[i] for i in part.tolist()], labels[part]) for part in parts)
        return rest, test

    def _list(self, folder: Path) -> tuple[list[Path], Tensor]:
        unknown = set(_subfolders(folder)) - set(self.classes)
        if unknown:
            raise ValueError(f"{folder} has a class that {self._train_folder} lacks: {min(unknown)}")
        files, labels = [], []
        for label, name in enumerate(self.classes):
            found = sorted(
                path
                for path in (folder / name).glob("*")
                if path.suffix.lower() in ENDINGS and not path.name.startswith(".")
            )
            if not found and folder == self._train_folder:
                raise FileNotFoundError(f"no images in {folder / name} ({', '.join(sorted(ENDINGS))})")
            files += found
            labels += [label] * len(found)
        if not files:
            raise FileNotFoundError(f"no images in {folder}")
        return files, torch.tensor(labels)

    def _read(self, files: Sequence[Path], labels: Tensor) -> tuple[Tensor, Tensor]:
        # Decoding releases the interpreter lock.
        with ThreadPoolExecutor() as pool:
            arrays = list(pool.map(self._read_one, files))
        return torch.from_numpy(np.stack(arrays)), labels

    def _read_one(self, path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        try:
            with Image.open(path) as image:
                if image.mode.startswith(("I", "F")):
                    raise ValueError("more than 8 bits a channel")  # Pillow would cut them off at white
                converted = ImageOps.exif_transpose(image).convert("RGB" if self.input_shape[0] == 3 else "L")
            fitted = ImageOps.fit(converted, (self.size, self.size), Image.Resampling.BICUBIC)
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, DecompressionBombError …
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"cannot read the image {path}: {reason}") from error
        array = np.asarray(fitted, dtype=np.uint8)
        return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise FileNotFoundError(
            f"{folder} has no subfolders: put the images of each class into one of its own"
        )
    return names
