"""What regression is judged by beside its loss: R², and how far predictions are from norm 1."""

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import Metric

CONSTANT = 1e-13  # share of the targets' mean square below which float32 cannot tell a spread from rounding


class R2(Metric):
    """R² = 1 − Σ‖ŷ − y‖² / Σ‖y − ȳ‖² over all samples, positions and components; ȳ is each component's mean.

    Targets without any spread, where the quotient has no meaning: 1 if predictions are as close as float32
    resolves, 0 otherwise.
    """

    full_state_update = False
    higher_is_better = True

    count: Tensor
    mean: Tensor
    spread: Tensor
    residual: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Means and spreads around them are merged, not sums of squares, whose difference loses all digits.
        for name in ("count", "mean", "spread", "residual"):
            self.add_state(name, default=torch.tensor(0.0), dist_reduce_fx=None)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Adds a batch of vectors, ``[B, ..., D]`` each."""
        y = target.float().flatten(0, -2)
        error = (prediction.float().flatten(0, -2) - y).square().sum()
        mean = y.mean(0)
        count = torch.stack((self.count, torch.full_like(self.count, len(y))))
        means = torch.stack((self.mean.expand_as(mean), mean))
        self.count, self.mean, self.spread = merged(
            count, means, torch.stack((self.spread, (y - mean).square().sum()))
        )
        self.residual = self.residual + error

    def compute(self) -> Tensor:
        """Returns R², 0-d."""
        dim = self.mean.shape[-1]  # ranks are stacked in front
        count, mean, spread = merged(
            self.count.reshape(-1), self.mean.reshape(-1, dim), self.spread.reshape(-1)
        )
        residual, rounding = self.residual.sum(), CONSTANT * count * mean.square().sum()
        constant = spread <= rounding
        ratio = residual / torch.where(constant, torch.ones_like(spread), spread)
        return torch.where(constant, (residual <= rounding).to(ratio.dtype), 1 - ratio)


def merged(count: Tensor, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and sum of squares around it of several sets together.

    With n = Σ nᵢ: m = Σ nᵢmᵢ/n, S = Σ Sᵢ + Σ nᵢ‖mᵢ − m‖².

    Args:
        count: nᵢ, ``[R]``.
        mean: mᵢ, ``[R, D]``.
        spread: Sᵢ, ``[R]``.

    Returns:
        0-d, ``[D]`` and 0-d.
    """
    total = count.sum()
    common = (count.unsqueeze(-1) * mean).sum(0) / total
    return total, common, (spread + count * (mean - common).square().sum(-1)).sum()


def norm_deviation(prediction: Tensor) -> Tensor:
    """mean_t |mean_b ‖ŷ_bt‖ − 1|, 0-d, of predictions ``[B, T, D]`` of unit vectors.

    Norms that scatter around 1 cancel within a position. Source: the code of arXiv:2605.06729.
    """
    norm: Tensor = torch.linalg.vector_norm(prediction.float(), dim=-1)
    return (norm.mean(0) - 1).abs().mean()


def rollout(predict: Callable[[Tensor], Tensor], x: Tensor, steps: int) -> Tensor:
    """Feeds a predictor its own last prediction, over a window as long as it was given: ``[B, steps, D]``.

    Args:
        predict: ``[B, T, D] → [B, T, D]``, position t predicting vector t + 1.
        x: the first window, ``[B, T, D]``.
        steps: number of predictions, ≥ 1.
    """
    made = []
    for _ in range(steps):  # each needs the one before it
        made.append(predict(x)[:, -1:].to(x.dtype))
        x = torch.cat((x[:, 1:], made[-1]), 1)
    return torch.cat(made, 1)
