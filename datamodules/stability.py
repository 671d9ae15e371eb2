"""Echo: every vector is the same unit key with a little fresh noise; predict the next one."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import normalize

from datamodules.sequences import UnitSequences, echoes


class Stability(UnitSequences):
    """x_t = key + 0.001·N(0, I), a random unit key for each sequence; the target is x_{t+1}.

    Floors: ``copy`` repeats the last vector (mean squared error 2·10⁻⁶); ``running_mean`` averages all so far
    (1.04·10⁻⁶ on average over 127 positions); ``bayes`` also knows that the key has norm 1, and is the best
    that can be done without knowing the key. Given t vectors of mean m and noise σ, the key is distributed as
    exp(κ m̂ᵀk) on the sphere with κ = t‖m‖/σ², whose mean is m̂ up to a factor 1 − O(D/κ),
    3·10⁻⁵ at most here.

    Args:
        batch_size: sequences an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training sequences, ≥ 0.
        data_seed: of the sequences themselves, ≥ 0.
        train_samples: number of training sequences, ≥ 1.
        val_samples: number of validation sequences, and of test sequences, ≥ 1. The published experiment
            has no test set; ours is a third, independent draw.
        time: T, ≥ 2.
        dim: size of a vector, ≥ 2.
        fresh: training sequences are drawn anew every epoch, from ``data_seed`` and its number.

    Raises:
        ValueError: an argument is out of range.

    Source: arXiv:2605.06729.
    """

    def __init__(
        self,
        batch_size: int = 64,
        seed: int = 0,
        data_seed: int = 42,
        train_samples: int = 900,
        val_samples: int = 100,
        time: int = 127,
        dim: int = 64,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, time, dim, fresh)

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws keys, then all noise at once."""
        x = echoes(samples, self.time + 1, self.dim, randomness)
        return x[:, :-1], x[:, 1:]

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Copying, the mean so far, and that mean at the key's length."""
        counts = torch.arange(1, x.shape[1] + 1).unsqueeze(-1)
        mean = x.double().cumsum(1) / counts
        return {
            "copy": x,
            "running_mean": mean.to(x.dtype),
            "bayes": normalize(mean, dim=-1).to(x.dtype),
        }
