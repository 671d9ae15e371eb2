"""Rotation at a constant rate in one hidden plane: predict the next vector."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import normalize

from datamodules.sequences import UnitSequences


class Gyroscope(UnitSequences):
    """v_{t+1} = R v_t, with a plane of two coordinate axes and an angle of its own for each trajectory.

    The angle is θ ~ U(0.1, 2.5), the axes i ~ U{0 … dim−2} and j ~ U{i+1 … dim−1}, v₀ a random unit vector.
    Inputs are v₀ … v_{T−1}, targets v₁ … v_T.

    Floors: ``copy`` repeats the last vector; ``bayes`` is the best that any causal predictor can do: from the
    second vector on plane and angle are known exactly, and for the first there is the mean rotation over all
    of them.

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
        train_samples: int = 9000,
        val_samples: int = 1000,
        time: int = 255,
        dim: int = 16,
        fresh: bool = False,
    ) -> None:
        super().__init__(batch_size, seed, data_seed, train_samples, val_samples, time, dim, fresh)

    def draw(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws all trajectories at once: only two coordinates move, so their angles say everything."""
        start = normalize(torch.randn(samples, self.dim, generator=randomness, dtype=torch.float64), dim=-1)
        theta = 0.1 + 2.4 * torch.rand(samples, 1, generator=randomness, dtype=torch.float64)
        i = torch.randint(self.dim - 1, (samples, 1), generator=randomness)
        j = i + 1 + (torch.rand(samples, 1, generator=randomness) * (self.dim - 1 - i)).long()
        angle = theta * torch.arange(self.time + 1)
        cos, sin, a, b = angle.cos(), angle.sin(), start.gather(1, i), start.gather(1, j)
        moving = torch.stack((a * cos - b * sin, a * sin + b * cos), -1)
        v = start.float().unsqueeze(1).repeat(1, self.time + 1, 1)
        v.scatter_(2, torch.cat((i, j), 1).unsqueeze(1).expand(-1, self.time + 1, -1), moving.float())
        return v[:, :-1], v[:, 1:]

    def predictors(self, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Copying; and the mean rotation at first, then another turn by the angle of the last one."""
        before = torch.cat((x[:, :1], x[:, :-1]), 1)
        plane = (x - before).abs().topk(2, -1).indices
        old, new = (torch.view_as_complex(v.gather(-1, plane).contiguous()) for v in (before, x))
        turned = torch.view_as_real(new * new / torch.where(old == 0, torch.ones_like(old), old))
        bayes = x.scatter(-1, plane, turned)
        bayes[:, 0] = x[:, 0] @ self.mean_rotation().to(x.dtype).T
        return {"copy": x, "bayes": bayes}

    def mean_rotation(self) -> Tensor:
        """E[R] over planes and angles, ``[dim, dim]`` float64."""
        low, high = 0.1, 2.5
        cos = (math.sin(high) - math.sin(low)) / (high - low)
        sin = (math.cos(low) - math.cos(high)) / (high - low)
        axis = torch.arange(self.dim, dtype=torch.float64)
        # P(i, j) = 1/(dim − 1) · 1/(dim − 1 − i) for i < j.
        chance = (1 / (self.dim - 1) / (self.dim - 1 - axis).clamp(min=1)).unsqueeze(-1)
        chance = chance.expand(-1, self.dim).triu(1)
        met = chance.sum(0) + chance.sum(1)
        return torch.diag(1 + (cos - 1) * met) + sin * (chance.T - chance)
