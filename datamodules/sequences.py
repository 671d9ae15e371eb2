"""What the tasks on sequences of vectors share. B: sequences, T: time, D: size of a vector."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from datamodules.base import InMemory
from datamodules.batches import Tensors


def generator(seed: int, part: int) -> torch.Generator:
    """A generator of its own for each part of the data, 0 for training, 1 validation, 2 test."""
    (state,) = np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) >> 1)


class Generated(InMemory):
    """A task whose samples are drawn from a seed: training, validation and test are independent draws.

    Args:
        batch_size: samples an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training samples, ≥ 0.
        data_seed: of the samples themselves, ≥ 0.
        train_samples: number of training samples, ≥ 1.
        val_samples: number of validation samples, and of test samples, ≥ 1.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, batch_size: int, seed: int, data_seed: int, train_samples: int, val_samples: int
    ) -> None:
        super().__init__(batch_size, seed)
        if data_seed < 0:
            raise ValueError(f"data_seed must be at least 0, got {data_seed}")
        for name, value in (("train_samples", train_samples), ("val_samples", val_samples)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.data_seed = data_seed
        self.train_samples = train_samples
        self.val_samples = val_samples

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws inputs and targets, ``[B, ...]`` float32."""
        raise NotImplementedError

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """What predictors without a network say for ``x``, given targets ``y``; the trivial one first."""
        raise NotImplementedError

    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Draws the training and the validation set."""
        train = self.draw(self.train_samples, generator(self.data_seed, 0))
        return train, self.draw(self.val_samples, generator(self.data_seed, 1))

    def test_data(self) -> Tensors:
        """Draws the test set."""
        return self.draw(self.val_samples, generator(self.data_seed, 2))

    def floors(self) -> Mapping[str, float]:
        """Predictor → mean squared error on the validation set, the trivial one first."""
        x, y = self.draw(self.val_samples, generator(self.data_seed, 1))
        return {name: float((p - y).square().mean()) for name, p in self.predictors(x, y).items()}
