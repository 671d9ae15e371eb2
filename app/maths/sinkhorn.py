"""Doubly stochastic matrices from logits."""

import torch
from torch import Tensor

from app.maths.direction import working


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """Scales rows and columns of exp(logits) in turn until both sum to 1, in the log domain.

    Args:
        logits: ``[..., n, n]``.
        iterations: how often columns (axis −2), then rows (axis −1) are normalised; at least 1.

    Returns:
        ``[..., n, n]`` in float32 at least, non-negative. Rows, normalised last, sum to 1 up to rounding.
        Columns do to 1e-5 for |logits| ≤ 1 and 20 iterations; for large logits convergence is slow, and
        ``stochasticity_error`` says how far it got.

    Raises:
        ValueError: for fewer than 1 iteration.

    Source:
        R. Sinkhorn (1964); as a residual mixing in arXiv:2512.24880.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    log = working(logits)
    for _ in range(iterations):
        log = torch.log_softmax(log, -2)
        log = torch.log_softmax(log, -1)
    return log.exp()


def stochasticity_error(matrix: Tensor) -> Tensor:
    """The largest |sum − 1| over rows and columns of ``[..., n, n]``, shape ``[...]``."""
    rows = (matrix.sum(-1) - 1).abs().amax(-1)
    return torch.maximum(rows, (matrix.sum(-2) - 1).abs().amax(-1))
