"""y = −x: what a reflection can do and a rotation of one plane cannot."""

from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.sequences import Generated


class Negation(Generated):
    """x ~ N(0, I), y = −x.

    Floors: ``zero`` predicts 0 (mean squared error 1), ``copy`` predicts x (4), ``negate`` is the answer (0).

    Args:
        batch_size: vectors an optimizer step over all ranks together; a multiple of their number, at least
            1 and at most ``train_samples``.
        seed: of the order of training vectors, ≥ 0.
        data_seed: of the vectors themselves, ≥ 0.
        train_samples: number of training vectors, ≥ 1; the published experiment has 10 … 500.
        val_samples: number of validation vectors, and of test vectors, ≥ 1. The published experiment has no
            test set; ours is a third, independent draw.
        dim: size of a vector, ≥ 2.
        fresh: training vectors are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.

    Source: arXiv:2605.06729.
    """

    def __init__(
        self,
        batch_size: int = 32,
        seed: int = 0,
        data_seed: int = 42,
        train_samples: int = 500,
        val_samples: int = 500,
        dim: int = 64,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, fresh)
        if dim < 2:
            raise ValueError(f"dim must be at least 2, got {dim}")
        self.dim = dim
        self.input_shape = (dim,)
        self.num_outputs = dim

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws the vectors."""
        x = torch.randn(samples, self.dim, generator=randomness)
        return x, -x

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Zero, copying, and the answer."""
        return {"zero": torch.zeros_like(x), "copy": x, "negate": -x}
