"""Intervals, tests and corrections for a handful of seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided t-interval; the ends are NaN for fewer than two values.

    Args:
        mean: Of the values, or the difference of two means.
        low, high: Ends.
        error: Standard error of the mean.
        freedom: Degrees of freedom.
        count: Values, or pairs, or those of the smaller sample.
    """

    mean: float
    low: float
    high: float
    error: float
    freedom: float
    count: int

    def p_above(self, bound: float) -> float:
        """The one-sided p-value of "the mean is above the bound": small where it is."""
        if np.isnan(self.low):
            return 1.0
        if self.error == 0:
            return 0.0 if self.mean > bound and not self._at(bound) else 1.0
        return float(stats.t.sf((self.mean - bound) / self.error, self.freedom))

    def p_below(self, bound: float) -> float:
        """The one-sided p-value of "the mean is below the bound"."""
        if np.isnan(self.low):
            return 1.0
        if self.error == 0:
            return 0.0 if self.mean < bound and not self._at(bound) else 1.0
        return float(stats.t.cdf((self.mean - bound) / self.error, self.freedom))

    def _at(self, bound: float) -> bool:
        """Whether the mean is the bound up to rounding: .96 − .95 is not more than .01."""
        return math.isclose(self.mean, bound, rel_tol=1e-9, abs_tol=1e-12)

    def p_within(self, margin: float) -> float:
        """The p-value of equivalence by two one-sided tests: |mean| < margin."""
        return max(self.p_above(-margin), self.p_below(margin))

    def p_outside(self, margin: float) -> float:
        """The p-value of a difference beyond the margin, on whichever side."""
        return min(1.0, 2 * min(self.p_above(margin), self.p_below(-margin)))


def interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """The t-interval of a mean: mean ± t·s/√n with n − 1 degrees of freedom.

    Args:
        values: One a seed; NaN is not allowed.
        level: Of the interval, in (0, 1).
    """
    sample = np.asarray(values, dtype=np.float64)
    count = len(sample)
    mean = float(sample.mean()) if count else float("nan")
    if count < 2:
        return Interval(mean, float("nan"), float("nan"), float("nan"), 0.0, count)
    # Values that are equal up to rounding have no spread: their interval is the point.
    spread = float(sample.std(ddof=1))
    error = 0.0 if spread <= 1e-12 * max(abs(mean), 1e-300) else spread / count**0.5
    return _around(mean, error, count - 1.0, count, level)


def paired(first: ArrayLike, second: ArrayLike, level: float = LEVEL) -> Interval:
    """The interval of the mean of first − second, pair by pair.

    Raises:
        ValueError: The two have different lengths.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"pairs must be as many on both sides, got {len(a)} and {len(b)}")
    return interval(a - b, level)


def unpaired(first: ArrayLike, second: ArrayLike, level: float = LEVEL) -> Interval:
    """Welch's interval of mean(first) − mean(second), for samples that share no seeds."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    count = min(len(a), len(b))
    mean = float(a.mean() - b.mean()) if count else float("nan")
    if count < 2:
        return Interval(mean, float("nan"), float("nan"), float("nan"), 0.0, count)
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    total = float(parts.sum())
    if total == 0:
        return Interval(mean, mean, mean, 0.0, float(len(a) + len(b) - 2), count)
    freedom = total**2 / float((parts**2 / (np.array([len(a), len(b)]) - 1)).sum())
    return _around(mean, total**0.5, freedom, count, level)


def _around(mean: float, error: float, freedom: float, count: int, level: float) -> Interval:
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return Interval(mean, mean - half, mean + half, error, freedom, count)


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Holm's step-down correction: adjusted p-values that hold for the whole family."""
    if not p_values:
        return np.empty(0)
    adjusted: NDArray[np.float64] = multipletests(list(p_values), method="holm")[1]
    return adjusted
