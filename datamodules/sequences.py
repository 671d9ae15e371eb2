"""What the tasks on sequences of vectors share. B: sequences, T: time, D: size of a vector."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from datamodules.base import InMemory
from datamodules.batches import FreshBatches, ShuffledBatches, Tensors

NOISE = 0.001  # of the echo task, and of the echoes that norms are measured on
PROBES = 50
PROBED_TIME = 100
CONTINUED = 8


def generator(seed: int, part: int) -> torch.Generator:
    """A generator of its own for each part: 0 training, 1 validation, 2 test, 3 what all have in common.

    Training data that are drawn anew have part 4 + i in epoch i.
    """
    (state,) = np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) >> 1)


def unit_vectors(randomness: torch.Generator, *shape: int) -> Tensor:
    """Vectors spread evenly over the unit sphere, ``shape`` with the vector's size last, float32."""
    return normalize(torch.randn(*shape, generator=randomness), dim=-1)


def echoes(samples: int, time: int, dim: int, randomness: torch.Generator) -> Tensor:
    """A unit key for each sequence plus noise fresh at every step, ``[samples, time, dim]``."""
    key = unit_vectors(randomness, samples, 1, dim)
    return key + NOISE * torch.randn(samples, time, dim, generator=randomness)


class Generated(InMemory):
    """A task whose samples are drawn from a seed: training, validation and test are independent draws.

    Args:
        batch_size: samples an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training samples, ≥ 0.
        data_seed: of the samples themselves, ≥ 0.
        train_samples: number of training samples, ≥ 1.
        val_samples: number of validation samples, and of test samples, ≥ 1.
        fresh: training samples are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        batch_size: int,
        seed: int,
        data_seed: int,
        train_samples: int,
        val_samples: int,
        fresh: bool = False,
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
        self.fresh = fresh

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

    def training_batches(self, tensors: Tensors, trained: Callable[[], int] | None) -> ShuffledBatches:
        """Makes the loader of the training set, or of one training set an epoch."""
        if not self.fresh:
            return super().training_batches(tensors, trained)
        return FreshBatches(self.draw_epoch, self.batch_size, *self._share(), self.seed, trained)

    def draw_epoch(self, epoch: int) -> Tensors:
        """Draws what an epoch trains on if data are ``fresh``."""
        return self.draw(self.train_samples, generator(self.data_seed, 4 + epoch))

    def test_data(self) -> Tensors:
        """Draws the test set."""
        return self.draw(self.val_samples, generator(self.data_seed, 2))

    def floors(self) -> Mapping[str, float]:
        """Predictor → mean squared error on the validation set, the trivial one first."""
        x, y = self.draw(self.val_samples, generator(self.data_seed, 1))
        return {name: float((p - y).square().mean()) for name, p in self.predictors(x, y).items()}


class UnitSequences(Generated):
    """A task on sequences of unit vectors: T of them go in, and T predictions come out.

    Args:
        batch_size: sequences an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training sequences, ≥ 0.
        data_seed: of the sequences themselves, ≥ 0.
        train_samples: number of training sequences, ≥ 1.
        val_samples: number of validation sequences, and of test sequences, ≥ 1.
        time: T, at least ``LEAST[0]``.
        dim: size of a vector, at least ``LEAST[1]``.
        fresh: training sequences are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.
    """

    LEAST: ClassVar[tuple[int, int]] = (2, 2)

    def __init__(
        self,
        batch_size: int,
        seed: int,
        data_seed: int,
        train_samples: int,
        val_samples: int,
        time: int,
        dim: int,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, fresh)
        for name, value, least in (("time", time, self.LEAST[0]), ("dim", dim, self.LEAST[1])):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self.time = time
        self.dim = dim
        self.input_shape = (time, dim)
        self.num_outputs = dim

    def norm_probes(self) -> Mapping[str, Tensor]:
        """Sequences to measure the norm of predictions on; the same on every rank.

        ``fresh``, ``[50, min(T, 100), D]``: every vector drawn anew, as published; nothing can be predicted,
        so a network that has learnt to average rightly answers with short vectors. ``echo``, as many: one key
        and a little noise. ``start``, ``[8, T, D]``: sequences of the task, to be continued.

        Source: arXiv:2605.06729 and its code for ``fresh``.
        """
        randomness, time = generator(self.data_seed, 3), min(self.time, PROBED_TIME)
        fresh = unit_vectors(randomness, PROBES, time, self.dim)
        echo = echoes(PROBES, time, self.dim, randomness)
        return {"fresh": fresh, "echo": echo, "start": self.draw(CONTINUED, randomness)[0]}
