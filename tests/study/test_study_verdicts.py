"""The rules by which a claim holds, does not, or is not settled."""

import copy
import math

import pandas as pd
import pytest
import small

from app.study import reading
from app.study.results import DIVERGED, DONE, FAILED, Results, metric
from app.study.verdicts import judge, number, points

CLAIM = {
    "claim": "a beats b",
    "source": "here",
    "task": "digits",
    "models": ["a"],
    "kind": "greater",
    "against": ["b"],
    "published_size": False,
}


def results(values: dict[str, list[float]], claim: dict, statuses: dict | None = None, **claims) -> Results:
    content = copy.deepcopy(small.STUDY)
    content["reference"] = "a"
    content["models"] = {
        name: {**small.MODEL, "label": name, "tuned": False} for name in ("a", "b", "c", "d")
    }
    content["claims"] = {"one": {**CLAIM, **claim}, **claims}
    study = reading.restore({**content, "name": "small"}, "here")
    rows = [
        {
            "task": "digits",
            "model": model,
            "seed": seed,
            "status": (statuses or {}).get((model, seed), DONE),
            "detail": "",
            "test/acc": value,
            "diverged": 0.0,
        }
        for model, one in values.items()
        for seed, value in enumerate(one)
    ]
    empty = pd.DataFrame(columns=["task", "model", "seed", "metric", "step", "value"])
    return Results(study, "quick", "", pd.DataFrame(rows), empty, pd.DataFrame())


def kind(values, claim, statuses=None) -> str:
    return judge(results(values, claim, statuses))["one"].kind


A = [0.90, 0.91, 0.92, 0.93, 0.94]
B = [value - 0.05 + 0.001 * i for i, value in enumerate(A)]
OPEN = "not settled: an interval reaches across the margin"


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ({}, "holds"),
        ({"margin": 0.04}, "holds"),
        ({"margin": 0.048}, "not settled"),
        ({"margin": 0.06}, "does not hold"),
        ({"kind": "less"}, "does not hold"),
        ({"kind": "less", "models": ["b"], "against": ["a"]}, "holds"),
        ({"kind": "equal", "margin": 0.06}, "holds"),
        ({"kind": "equal", "margin": 0.04}, "does not hold"),
        ({"kind": "equal", "margin": 0.048}, "not settled"),
        ({"against": [], "value": 0.8}, "holds"),
        ({"against": [], "value": 0.95}, "does not hold"),
        ({"against": [], "value": 0.92}, "not settled"),
        ({"scale": "ratio", "margin": math.log(1.04)}, "holds"),
        ({"scale": "ratio", "margin": math.log(1.07)}, "does not hold"),
    ],
)
def test_margins(claim, expected):
    assert kind({"a": A, "b": B}, claim) == expected


def test_pairs_are_by_seed():
    """Seeds that differ much more than models do hide nothing."""
    spread = [0.1, 0.3, 0.5, 0.7, 0.9]
    assert kind({"a": [s + 0.02 + 0.001 * i for i, s in enumerate(spread)], "b": spread}, {}) == "holds"


def test_four_seeds_settle_nothing():
    found = judge(results({"a": A[:4], "b": B[:4]}, {}))["one"]
    assert found.kind == "not settled"
    assert "fewer than 5 seeds" in found.words


def test_failed_runs_are_named_and_not_counted():
    found = judge(results({"a": A, "b": B}, {}, {("b", 2): FAILED}))["one"]
    assert found.kind == "not settled"
    assert "b lacks the seeds 2" in found.grounds


def test_diverged_runs_count_as_trivial():
    broken = {("b", seed): DIVERGED for seed in range(5)}
    found = judge(results({"a": A, "b": [math.nan] * 5}, {}, broken))["one"]
    assert found.kind == "holds"
    assert "5 of b diverged and count as “trivial”, 0.1" in found.grounds
    assert found.comparisons[0].theirs == (pytest.approx(0.1), pytest.approx(0))


def test_every_pair_must_hold_and_one_failure_is_enough():
    values = {"a": A, "b": B, "c": [value - 0.1 + 0.001 * i for i, value in enumerate(A)]}
    assert kind(values, {"against": ["b", "c"]}) == "holds"
    assert kind(values, {"against": ["b", "c"], "margin": 0.07}) == "does not hold"
    assert kind(values, {"models": ["a", "b"], "against": ["c"]}) == "holds"
    assert kind({"a": A, "b": B}, {"against": ["b", "c"]}) == "not settled"


def test_published_size_is_said():
    found = judge(results({"a": A, "b": B}, {"published_size": True}))["one"]
    assert found.at_reduced_size
    assert found.words == "at reduced size: holds"


def test_unpublished_settings_settle_only_with_a_grid_that_agrees():
    low = {"a": B, "b": A, "c": B, "d": A}
    claim = {"unpublished": "width"}
    found = judge(results(low, claim))["one"]
    assert found.kind == "not settled"
    assert "unpublished settings (width)" in found.words
    assert kind(low, {**claim, "grid": ["c"]}) == "does not hold"
    assert kind(low, {**claim, "grid": ["c", "d"]}) == "not settled"
    assert kind({"a": B, "b": A}, {**claim, "grid": ["c"]}) == "not settled"
    assert kind({"a": A, "b": B}, claim) == "holds"


def test_many_claims_need_stronger_evidence():
    noisy = [0.021, 0.002, 0.018, 0.011, 0.014]
    values = {"a": [0.9 + one for one in noisy], "b": [0.9] * 5}
    assert kind(values, {}) == "holds"
    idle = {f"c{i}": {**CLAIM, "against": [], "value": 0.913, "kind": "greater"} for i in range(20)}
    assert judge(results(values, {}, None, **idle))["one"].kind == "not settled"


def test_differences_of_metrics():
    frame = pd.DataFrame({"train/acc": [0.9, 0.8], "test/acc": [0.7, 0.75]})
    assert list(metric(frame, "train/acc - test/acc")) == pytest.approx([0.2, 0.05])
    assert metric(frame, "train/acc - no").isna().all()


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [
        (0.9689, "test/acc", "96.89 %"),
        (0.02, "train/acc - test/acc", "2.00 %"),
        (0.5446, "test/certified_acc_1_58", "54.46 %"),
        (2.94e-6, "test/loss", "2.94e-06"),
        (0.0, "x", "0"),
        (math.nan, "test/acc", "–"),
    ],
)
def test_numbers(value, name, shown):
    assert number(value, name) == shown


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"margin": 0.048}, OPEN),
        ({"against": [], "value": 0.92}, OPEN),
        ({"kind": "equal", "margin": 0.048}, OPEN),
        ({"kind": "less", "models": ["b"], "against": ["a"], "margin": 0.048}, OPEN),
        ({"against": ["c"]}, "not settled: no values in this preset"),
        ({"margin": 0.04}, "holds"),
    ],
)
def test_what_is_open_says_why(claim, reason):
    assert judge(results({"a": A, "b": B}, claim))["one"].words == reason


def test_a_correction_that_leaves_a_claim_open_is_named():
    noisy = [0.021, 0.002, 0.018, 0.011, 0.014]
    values = {"a": [0.9 + one for one in noisy], "b": [0.9] * 5}
    idle = {f"c{i}": {**CLAIM, "against": [], "value": 0.913, "kind": "greater"} for i in range(20)}
    found = judge(results(values, {}, None, **idle))
    assert found["one"].words == "not settled: not clear enough for so many comparisons"
    assert found["c3"].words == "not settled: an interval reaches across the margin"


def test_a_model_of_the_grid_fails_as_soon_as_one_comparison_does():
    values = {"a": B, "b": A, "c": B, "d": [value - 0.1 + 0.001 * i for i, value in enumerate(B)]}
    claim = {"unpublished": "width", "against": ["b", "d"], "grid": ["c"]}
    # c is worse than b and better than d, as a is: not as good as each, which is what is claimed.
    assert kind(values, claim) == "does not hold"


def test_differences_of_accuracies_are_points():
    found = judge(results({"a": A, "b": B}, {"margin": 0.04}))["one"]
    assert "difference 4.80 points [4.60, 5.00]" in found.grounds
    assert found.grounds.endswith("Margin: 4.00 points.")
    assert points(-0.0673, "test/acc") == "−6.73 points"
    assert points(-2.5e-6, "test/loss") == "−2.50e-06"
    ratio = judge(results({"a": A, "b": B}, {"scale": "ratio", "margin": math.log(1.04)}))["one"]
    assert ratio.grounds.endswith("Margin: a factor of 1.04.")


def test_runs_without_the_metric_are_named():
    """No run is left out in silence, whatever the metric."""
    asked = results({"a": [*A, 0.9], "b": B}, {"metric": "test/acc"}, {("a", 5): DIVERGED})
    asked.study.tasks["digits"].floors.clear()
    asked.runs.loc[asked.runs["seed"] == 5, "test/acc"] = math.nan
    assert "1 of a ended without a usable test/acc" in judge(asked)["one"].grounds
    nothing = judge(results({"a": A, "b": B}, {"metric": "diagnostics/x", "margin": 0.01}))["one"]
    assert nothing.words == "not settled: no values in this preset"
    assert "5 of a ended without a usable diagnostics/x" in nothing.grounds


def test_a_ratio_has_no_place_for_zero():
    found = judge(results({"a": [0.0, *A[1:]], "b": B}, {"scale": "ratio"}))["one"]
    assert found.kind == "not settled"
    assert "1 of a ended without a usable test/acc" in found.grounds


@pytest.mark.parametrize(("t", "expected"), [(2.4, "not settled"), (2.9, "holds")])
def test_either_side_could_be_found(t, expected):
    """With 4 degrees of freedom t must pass 2.776, as for a 95 % interval; one side alone asks 2.132."""
    steps = [0.01 * (step + t / math.sqrt(2)) for step in (-2, -1, 0, 1, 2)]  # standard error .01 / √2
    assert kind({"a": [0.8 + step for step in steps], "b": [0.8] * 5}, {}) == expected


@pytest.mark.parametrize("claim", [{"kind": "greater"}, {"kind": "less", "margin": 0.01}])
def test_the_reason_knows_both_sides(claim):
    """Both clear without a correction: on the wrong side of 0, and on the right side of −.01."""
    differences = [-0.031, -0.012, -0.028, -0.021, -0.024]
    values = {"a": [0.9 + one for one in differences], "b": [0.9] * 5}
    idle = {f"c{i}": {**CLAIM, "against": [], "value": 0.8768} for i in range(60)}
    words = judge(results(values, claim, None, **idle))["one"].words
    assert words == "not settled: not clear enough for so many comparisons"


def test_a_difference_beyond_the_margin_is_not_doubled_twice():
    """An equivalence that fails with p = .03 fails: twice that would leave it open."""
    values = {"a": [0.9, 0.91, 0.92, 0.93, 0.94], "b": [0.88, 0.897, 0.882, 0.913, 0.908]}
    (one,) = judge(results(values, {"kind": "equal", "margin": 0.008}))["one"].comparisons
    two_sided = one.difference.p_outside(0.008)
    assert 0.025 < two_sided < 0.05
    assert one.p_contrary == pytest.approx(two_sided)
    assert one.kind == "does not hold"


def test_means_are_of_the_seeds_that_are_compared():
    (one,) = judge(results({"a": [*A, 0.1], "b": B}, {}))["one"].comparisons
    assert one.ours[0] - one.theirs[0] == pytest.approx(one.difference.mean)
    assert one.ours[0] == pytest.approx(sum(A) / 5)


def test_comparisons_that_are_still_running_count():
    """A page in the middle of a study is no kinder than the last one."""
    noisy = [0.021, 0.002, 0.018, 0.011, 0.014]
    values = {"a": [0.9 + one for one in noisy], "b": [0.9] * 5, "c": [0.5]}
    waiting = {f"c{i}": {**CLAIM, "against": ["c"]} for i in range(20)}
    assert judge(results(values, {}, None, **waiting))["one"].kind == "not settled"
