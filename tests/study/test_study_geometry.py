"""Operators by themselves, with known answers."""

import pytest

from app.study.geometry import deviation, iteration, projection, zero_gradient


def test_symmetric_penalties_have_no_gradient_at_the_midpoint() -> None:
    for name, row in zero_gradient(1, steps=100, lr=0.1).items():
        assert row["gradient"] == 0, name
        assert row["moved"] == 0, name
        assert row["moved_biased"] > 0.2, name


def test_products_stay_orthogonal_where_each_factor_is() -> None:
    rows = deviation(1, depths=(1, 16), samples=64)
    for name in ("cayley", "reflection", "quaternion", "edelta_decided"):
        assert rows[name]["deviation_16"] < 1e-5, name
    # A blend halfway loses a direction at once; what mHC keeps is the mean: |1/4 − 1| is the largest entry.
    assert rows["edelta_half"]["deviation_1"] > 0.3
    assert rows["mhc_published_start"]["deviation_16"] == pytest.approx(0.75, abs=1e-3)
    for name in ("mhc_start", "jpmhc_1"):
        assert rows[name]["deviation_16"] > 5 * rows[name]["deviation_1"], name


def test_the_iterations_error_is_the_published_one_and_the_closed_form_has_none() -> None:
    rows = iteration(1, samples=4000)
    assert rows["jpmhc"]["error_0.3"] == pytest.approx(2.7e-5, rel=0.15)
    assert rows["jpmhc"]["error_1"] == pytest.approx(3.3e-3, rel=0.15)
    assert rows["jpmhc"]["error_3"] == pytest.approx(0.17, rel=0.15)
    assert rows["jpmhc"]["error_10"] == pytest.approx(125, rel=0.15)
    assert max(rows["cayley"].values()) <= 2e-6


def test_times_are_over_the_plain_residual() -> None:
    rows = projection(1, tokens=8, repeats=3)
    assert rows["plain"]["ratio"] == 1
    assert all(row["seconds"] > 0 for row in rows.values())
