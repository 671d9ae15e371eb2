"""Splits of labelled samples into parts of the same class proportions."""

import numpy as np
import torch
from torch import Tensor


def stratified_split(labels: Tensor, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draws ``size`` samples in the proportions of the classes, and returns the rest beside them.

    Within each class the samples are put in a random order; the r-th of n gets the key (r + ½) / n, and the
    ``size`` smallest keys are drawn. A class of n samples out of N so contributes size · n / N of them, up to
    rounding.

    Args:
        labels: classes, ``[N]`` int64.
        size: number of samples to draw, in 1 … N − 1.
        seed: of the order within classes, ≥ 0.

    Returns:
        Indices of the rest, ``[N − size]``, and of the drawn samples, ``[size]``, both ascending.

    Raises:
        ValueError: ``size`` leaves one of the two parts empty.
    """
    if not 0 < size < len(labels):
        raise ValueError(
            f"the size of a split of {len(labels)} samples must lie in 1 … {len(labels) - 1}, got {size}"
        )
    (state,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(int(state) >> 1))
    by_class = order[labels[order].argsort(stable=True)]
    counts = labels.bincount()
    within = torch.arange(len(labels)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    keys = (within + 0.5) / counts.repeat_interleave(counts)
    # Ties between classes fall by the random order, not by the class number.
    ties = torch.empty_like(order)
    ties[order] = torch.arange(len(order))
    chosen = by_class[np.lexsort((ties[by_class].numpy(), keys.numpy()))]
    return chosen[size:].sort().values, chosen[:size].sort().values


def fraction_of(count: int, fraction: float) -> int:
    """Returns ``fraction`` of ``count`` samples, rounded, but at least one and at most all but one."""
    return min(max(round(count * fraction), 1), count - 1)
