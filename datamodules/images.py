"""The base of the image tasks: uint8 in memory, everything else on the device."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.augment import crop_and_flip
from datamodules.base import InMemory
from datamodules.batches import Tensors
from datamodules.splits import fraction_of, stratified_split


class InMemoryImages(InMemory):
    """Images ``[N, C, H, W]`` in uint8 and classes ``[N]`` in int64.

    A batch is cut and moved to the device as uint8, and there becomes a float in [0, 1], or, normalised,
    (x − mean) / std per channel. Training batches of a task with ``padding`` > 0 are cropped and mirrored
    before.

    Args:
        batch_size: images an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order, the augmentation and the splits of the training images, ≥ 0.
        val_fraction: share of the training images held back for validation, in (0, 1).
        train_samples: train on no more than so many images, drawn in the proportions of the classes.
        normalise: subtract the mean and divide by the standard deviation of the task's training images.
        augment: crop and mirror training images where the task says so.

    Attributes:
        pixel_max: the raw value that becomes 1.
        mean: per channel, of the training images scaled to [0, 1].
        std: likewise.
        padding: zeros around a training image that is cropped back to its size; 0 is no augmentation.

    Raises:
        ValueError: an argument is out of range.
    """

    pixel_max: int = 255
    mean: Sequence[float]
    std: Sequence[float]
    padding: int = 0

    def __init__(
        self,
        batch_size: int = 128,
        seed: int = 0,
        val_fraction: float = 0.1,
        train_samples: int | None = None,
        normalise: bool = True,
        augment: bool = True,
    ) -> None:
        super().__init__(batch_size, seed)
        if not 0 < val_fraction < 1:
            raise ValueError(f"val_fraction must lie between 0 and 1, got {val_fraction}")
        if train_samples is not None and train_samples < 1:
            raise ValueError(f"train_samples must be at least 1, got {train_samples}")
        self.val_fraction = val_fraction
        self.train_samples = train_samples
        self.normalise = normalise
        self.augment = augment
        self._affine: Tensor | None = None

    @property
    def input_lipschitz(self) -> float:
        """By how much distances between images in [0, 1] grow at most: 1 / min σ, or 1 unnormalised."""
        return 1 / min(self.std) if self.normalise else 1.0

    @abstractmethod
    def training_images(self) -> tuple[Tensor, Tensor]:
        """Returns the images that may be trained and validated on, and their classes."""

    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Splits the training images, by the seed and in the proportions of the classes."""
        x, y = self.training_images()
        train, val = stratified_split(y, fraction_of(len(y), self.val_fraction), self.seed)
        return self.limited(x[train], y[train]), (x[val], y[val])

    def limited(self, x: Tensor, y: Tensor) -> Tensors:
        """Returns ``train_samples`` of the training images, or all of them."""
        if self.train_samples is None or self.train_samples == len(y):
            return x, y
        if self.train_samples > len(y):
            raise ValueError(f"train_samples must be at most {len(y)}, got {self.train_samples}")
        _, drawn = stratified_split(y, self.train_samples, self.seed)
        return x[drawn], y[drawn]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Augments (in training) and scales the images of a batch ``(x, y)``, on their device."""
        x, y = batch
        if self.augment and self.padding and self.trainer is not None and self.trainer.training:
            x = crop_and_flip(x, self.padding, self._generator(x.device))
        x = self.scaled(x)
        return (x if self.trainer is None else self.trainer.precision_plugin.convert_input(x)), y

    def scaled(self, x: Tensor) -> Tensor:
        """Maps raw images ``[B, C, H, W]`` to what the network sees, float32."""
        if self._affine is None or self._affine.device != x.device:
            self._affine = self._scale_and_shift().to(x.device)
        scale, shift = self._affine
        return torch.addcmul(shift, x.float(), scale)

    def _scale_and_shift(self) -> Tensor:
        channels = self.input_shape[0]
        mean, std = (torch.tensor(v, dtype=torch.float64).expand(channels) for v in (self.mean, self.std))
        if not self.normalise:
            mean, std = torch.zeros(channels), torch.ones(channels)
        return torch.stack([1 / (self.pixel_max * std), -mean / std]).float().view(2, channels, 1, 1)

    def _generator(self, device: torch.device) -> torch.Generator:
        # By seed, epoch, batch and rank, and apart from the global state: a resumed run draws the same again,
        # and nothing else that draws changes the images.
        counters = (0, 0) if self._training is None else (self._training.epoch, self._training.position)
        (state,) = np.random.SeedSequence((self.seed, *counters, self._share()[0])).generate_state(
            1, np.uint64
        )
        return torch.Generator(device).manual_seed(int(state) >> 1)
