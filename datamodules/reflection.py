"""y = Hx with one hidden reflection: a direction that has to be found, and that x does not give away."""

from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.sequences import Generated, generator, unit_vectors


class Reflection(Generated):
    """x ~ N(0, I), y = x − 2k(kᵀx) with a unit k that is fixed for all samples and drawn from ``data_seed``.

    Unlike negation, it is not solved by a reflection along x.

    Floors: ``copy`` predicts x (mean squared error 4/D), ``zero`` predicts 0 (1), ``negate`` predicts −x
    (4 − 4/D), ``reflect`` is the answer (0), which a single sample gives away: x − y is along k.

    Args:
        batch_size: vectors an optimizer step over all ranks together; a multiple of their number, at least
            1 and at most ``train_samples``.
        seed: of the order of training vectors, ≥ 0.
        data_seed: of the vectors themselves and of k, ≥ 0.
        train_samples: number of training vectors, ≥ 1.
        val_samples: number of validation vectors, and of test vectors, ≥ 1.
        dim: D, size of a vector, ≥ 2.
        fresh: training vectors are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.
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

    def normal(self) -> Tensor:
        """k, ``[D]``, the same in all three parts."""
        return unit_vectors(generator(self.data_seed, 3), self.dim)

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws the vectors and reflects them."""
        x, k = torch.randn(samples, self.dim, generator=randomness), self.normal()
        return x, x - 2 * (x @ k).unsqueeze(-1) * k

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Copying, zero, the opposite, and the answer."""
        return {"copy": x, "zero": torch.zeros_like(x), "negate": -x, "reflect": y}
