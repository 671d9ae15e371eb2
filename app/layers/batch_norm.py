"""What a branch changes behind batch normalisation and ReLU, without touching the statistics."""

import torch.nn.functional as F
from torch import Tensor, nn

from app.maths import recruitment


def normalised_output(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """relu(norm(x)) at the running statistics, whatever the mode of ``norm``; keeps none of x.

    Without running statistics those of x are used.
    """
    if norm.running_mean is None or norm.running_var is None:
        return reestimated_output(norm, x)
    y = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)
    return F.relu(y)


def reestimated_output(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """relu(norm(x)) with the statistics of x itself; keeps none."""
    return F.relu(recruitment.batch_normalised(x, norm.weight, norm.bias, norm.eps))


def block_effects(norm: nn.BatchNorm2d, sigma: Tensor, multiplicative: Tensor) -> dict[str, Tensor]:
    """``pi_effect_postbn`` as published and ``pi_effect_reestimated`` for σ + m against σ, [N, C, H, W]."""
    on = sigma + multiplicative
    return {
        "pi_effect_postbn": recruitment.relative_change(
            normalised_output(norm, on), normalised_output(norm, sigma)
        ),
        "pi_effect_reestimated": recruitment.relative_change(
            reestimated_output(norm, on), reestimated_output(norm, sigma)
        ),
    }
