"""One rotation for all sequences, by nearly half a turn: predict the next vector."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.sequences import UnitSequences, unit_vectors


class NearPi(UnitSequences):
    """v_{t+1} = R v_t with one fixed R: the planes (0, 1), (2, 3), … each turn by the same angle θ.

    A rotation by exactly π has eigenvalues −1, which no Cayley transform reaches. Inputs are v₀ … v_{T−1},
    v₀ a random unit vector, targets v₁ … v_T.

    Floors: ``negate`` flips the coordinates of the turned planes, mean squared error 2(1 + cos θ)·2p/D² for p
    planes; ``copy`` repeats the last vector; ``rotate`` is the answer (0). At θ = π ``negate`` is the answer
    too, and there is nothing to compare with.

    Args:
        batch_size: sequences an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training sequences, ≥ 0.
        data_seed: of the sequences themselves, ≥ 0.
        train_samples: number of training sequences, ≥ 1.
        val_samples: number of validation sequences, and of test sequences, ≥ 1. The published experiment
            has no test set; ours is a third, independent draw.
        time: T, ≥ 2.
        dim: D, size of a vector, ≥ 2.
        angle: θ in radians, in (0, π]. Published: 3.10 for one plane, 3.14 for 32.
        planes: p, how many planes turn, 1 … D/2.
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
        train_samples: int = 1000,
        val_samples: int = 500,
        time: int = 127,
        dim: int = 64,
        angle: float = 3.10,
        planes: int = 1,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, time, dim, fresh)
        if not 0 < angle <= math.pi:
            raise ValueError(f"angle must be above 0 and at most π, got {angle}")
        if not 1 <= planes <= dim // 2:
            raise ValueError(f"planes must be at least 1 and at most {dim // 2}, half of dim, got {planes}")
        self.angle = angle
        self.planes = planes

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws first vectors, then turns all of them by every multiple of the angle at once."""
        start = unit_vectors(randomness, samples, 1, self.dim)
        turned = 2 * self.planes
        # In double from first vectors of single precision: half turns by π come out exact.
        pairs = torch.view_as_complex(torch.unflatten(start[..., :turned].double(), -1, (-1, 2)))
        angles = self.angle * torch.arange(self.time + 1, dtype=torch.float64).unsqueeze(-1)
        turns = torch.complex(angles.cos(), angles.sin())
        moving = torch.view_as_real(pairs * turns).flatten(-2).float()
        v = torch.cat((moving, start[..., turned:].expand(-1, self.time + 1, -1)), -1)
        return v[:, :-1], v[:, 1:]

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Negating what turns, copying, and the answer."""
        turned = 2 * self.planes
        return {"negate": torch.cat((-x[..., :turned], x[..., turned:]), -1), "copy": x, "rotate": y}
