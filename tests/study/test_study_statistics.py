"""Intervals and tests against scipy's own, hand-computed numbers and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from app.study.statistics import holm, interval, paired, unpaired

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12).filter(lambda v: np.std(v) > 1e-6)


@given(SAMPLES, st.floats(-1e6, 1e6))
def test_interval_and_p_values_are_scipys(values, bound):
    found = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert found.low == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert found.high == pytest.approx(high, rel=1e-9, abs=1e-9)
    above = stats.ttest_1samp(values, bound, alternative="greater").pvalue
    assert found.p_above(bound) == pytest.approx(above, rel=1e-6, abs=1e-12)
    assert found.p_below(bound) == pytest.approx(1 - above, rel=1e-6, abs=1e-9)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_pairs_are_scipys_and_turn_with_the_sides(values, random):
    other = [value + random.uniform(-1, 1) for value in values]
    found, turned = paired(values, other), paired(other, values)
    p = stats.ttest_rel(values, other, alternative="greater").pvalue
    if found.error > 0:
        assert found.p_above(0) == pytest.approx(p, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((-turned.high, -turned.low))
    order = random.sample(range(len(values)), len(values))
    shuffled = paired(np.take(values, order), np.take(other, order))
    assert shuffled.mean == pytest.approx(found.mean, rel=1e-9, abs=1e-9)


@given(SAMPLES, SAMPLES)
def test_unpaired_is_welchs(first, second):
    found = unpaired(first, second)
    wanted = stats.ttest_ind(first, second, equal_var=False)
    low, high = wanted.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)
    assert found.p_above(0) == pytest.approx(
        stats.ttest_ind(first, second, equal_var=False, alternative="greater").pvalue, rel=1e-5, abs=1e-9
    )


def test_numbers_by_hand():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # mean 3, s = √2.5, s/√5 = .70711, t(.975, 4) = 2.77645
    assert found.mean == 3
    assert found.error == pytest.approx(0.7071068)
    assert (found.low, found.high) == pytest.approx((1.036757, 4.963243), abs=1e-5)
    # Two one-sided tests at ±6: t = 3/.70711 = 4.2426 on 4 degrees of freedom, p = .00662
    assert found.p_within(6) == pytest.approx(0.0066, abs=2e-4)
    assert found.p_within(3) == pytest.approx(0.5)
    assert found.p_outside(1) == pytest.approx(2 * 0.0237, abs=2e-3)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 0.1135])
def test_no_spread_is_a_point(value):
    found = interval([value] * 5)
    assert found.low == found.high == found.mean == value
    assert found.p_above(value - 0.1) == 0
    assert found.p_above(value) == 1
    assert found.p_below(value + 0.1) == 0
    assert interval(np.full(5, 0.1) * 3 - 0.3).error == 0


@pytest.mark.parametrize("values", [[], [1.0]])
def test_too_few_settle_nothing(values):
    found = interval(values)
    assert math.isnan(found.low)
    assert found.p_above(-10) == found.p_below(10) == found.p_within(10) == 1


def test_pairs_must_match():
    with pytest.raises(ValueError, match="as many on both sides"):
        paired([1, 2], [1, 2, 3])


def test_intervals_cover_as_often_as_they_say():
    random = np.random.default_rng(1)
    draws = random.normal(0.3, 2, (4000, 5))
    covered = np.mean([(one := interval(row)).low <= 0.3 <= one.high for row in draws])
    assert covered == pytest.approx(0.95, abs=0.012)


def test_holm_by_hand_and_by_simulation(monkeypatch):
    monkeypatch.setattr("gc.collect", lambda: 0)  # statsmodels calls it each time: slow
    # Sorted .01, .02, .04: ×3, ×2, ×1, never falling.
    assert holm([0.02, 0.01, 0.04]) == pytest.approx([0.04, 0.03, 0.04])
    assert len(holm([])) == 0
    random = np.random.default_rng(2)
    families = random.uniform(size=(4000, 10))
    wrong = np.mean([(holm(list(family)) < 0.05).any() for family in families])
    assert wrong == pytest.approx(0.05, abs=0.012)
    assert np.mean((families < 0.05).any(1)) > 0.35  # what no correction would do


def test_rounding_is_no_difference():
    found = paired([0.96] * 5, [0.95] * 5)
    assert found.mean > 0.01  # by 9e-18
    assert found.p_above(0.01) == found.p_below(0.01) == 1
    assert found.p_above(0.0099) == 0
