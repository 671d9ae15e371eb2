"""A concept is repeated until a signal ("actually, no") turns it into its opposite."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from datamodules.sequences import UnitSequences, unit_vectors

SIGNAL = 5.0
SIGNAL_NOISE = 0.1


class Correction(UnitSequences):
    """Inputs c, …, c, signal, −c, …, −c; targets c before the signal, −c at it and after it.

    c is a unit vector of its own for each sequence, the signal 5 in the first coordinate, 0.1·N(0, 1) in the
    next three and 0 elsewhere, its position uniform over the middle half, T/4 … T − T/4 − 1. What is asked is
    the direction: ``val/cosine``.

    Floors: ``copy`` repeats the last vector, wrong at the signal alone; ``zero`` predicts 0 (1/D); a causal
    predictor can be right throughout (0), as ``correct`` is: at it, the opposite of the vector before.

    Args:
        batch_size: sequences an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training sequences, ≥ 0.
        data_seed: of the sequences themselves, ≥ 0.
        train_samples: number of training sequences, ≥ 1.
        val_samples: number of validation sequences, and of test sequences, ≥ 1. The published experiment
            has no test set; ours is a third, independent draw.
        time: T, ≥ 4.
        dim: D, size of a vector, ≥ 4.
        fresh: training sequences are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.

    Source: arXiv:2605.06729.
    """

    LEAST: ClassVar[tuple[int, int]] = (4, 4)

    def __init__(
        self,
        batch_size: int = 64,
        seed: int = 0,
        data_seed: int = 42,
        train_samples: int = 4500,
        val_samples: int = 500,
        time: int = 32,
        dim: int = 32,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, time, dim, fresh)

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws concepts, positions and signals."""
        concept = unit_vectors(randomness, samples, 1, self.dim)
        edge = self.time // 4
        position = torch.randint(edge, self.time - edge, (samples, 1, 1), generator=randomness)
        signal = torch.zeros(samples, 1, self.dim)
        signal[..., 0] = SIGNAL
        signal[..., 1:4] = SIGNAL_NOISE * torch.randn(samples, 1, 3, generator=randomness)
        time = torch.arange(self.time).unsqueeze(-1)
        y = torch.where(time < position, concept, -concept)
        return torch.where(time == position, signal, y), y

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Copying, zero, and copying with the opposite of the vector before a signal."""
        before = torch.cat((x[:, :1], x[:, :-1]), 1)
        correct = torch.where(x[..., :1] > SIGNAL / 2, -before, x)
        return {"copy": x, "zero": torch.zeros_like(x), "correct": correct}
