"""Claims judged: what holds, what does not, and what is not settled, each with its grounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from app.study.plan import Claim, Measurement, Study, Task
from app.study.results import DIVERGED, DONE, Results, scored
from app.study.statistics import Interval, holm, interval, paired, unpaired

Kind = Literal["holds", "does not hold", "not settled"]

SEEDS = 5
"""Fewer settle nothing."""

ALPHA = 0.05


@dataclass(frozen=True)
class Comparison:
    """A model against another, or against a value.

    Args:
        model: Its name.
        against: The other's name; empty for a value.
        value: Compared with where there is no other.
        ours, theirs: Mean ± standard deviation of each as the metric has it.
        difference: With its interval, of logarithms for a ratio.
        p_for, p_contrary: Of "it is as claimed" and of "it is not"; adjusted over the page once judged.
        notes: What a reader must know about the values.
        scale: As the claim's.
    """

    model: str
    against: str
    value: float | None
    ours: tuple[float, float]
    theirs: tuple[float, float] | None
    difference: Interval
    p_for: float
    p_contrary: float
    notes: tuple[str, ...]
    scale: Literal["difference", "ratio"]

    @property
    def kind(self) -> Kind:
        """What this comparison alone says; its p-values are adjusted."""
        if self.difference.count < SEEDS:
            return "not settled"
        if self.p_for < ALPHA:
            return "holds"
        return "does not hold" if self.p_contrary < ALPHA else "not settled"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        kind: The answer.
        at_reduced_size: Whether it is about smaller runs than the claim's.
        words: As the page says it.
        grounds: The numbers, in a sentence.
        comparisons: All of them.
    """

    kind: Kind
    at_reduced_size: bool
    words: str
    grounds: str
    comparisons: tuple[Comparison, ...]


def judge(results: Results) -> dict[str, Verdict]:
    """Judges all claims of a study, with Holm's correction over all comparisons of the page."""
    study = results.study
    found = {name: compare(claim, claim.models, results) for name, claim in study.claims.items()}
    grids = {name: compare(claim, claim.grid, results) for name, claim in study.claims.items()}
    every = [one for group in (*found.values(), *grids.values()) for one in group]
    family = [one for one in every if one.difference.count >= SEEDS]  # no other can settle anything
    # Either side could be found significant, so each comparison counts once with the smaller of its two.
    adjusted = holm([min(1.0, 2 * min(one.p_for, one.p_contrary)) for one in family])
    lookup = {id(one): one for one in every}
    lookup |= {id(one): corrected(one, float(p)) for one, p in zip(family, adjusted, strict=True)}
    return {
        name: verdict(
            claim,
            tuple(lookup[id(one)] for one in found[name]),
            tuple(lookup[id(one)] for one in grids[name]),
            results,
        )
        for name, claim in study.claims.items()
    }


def corrected(one: Comparison, p: float) -> Comparison:
    """A comparison with its adjusted p-value on the side that the data are on."""
    if one.p_for <= one.p_contrary:
        return replace(one, p_for=p, p_contrary=1.0)
    return replace(one, p_for=1.0, p_contrary=p)


def compare(claim: Claim, models: list[str], results: Results) -> list[Comparison]:
    """Makes every comparison of a claim, p-values not adjusted."""
    found = []
    for model in models:
        ours, notes = values(claim, model, results)
        if claim.value is not None:
            sample = scaled(ours, claim)
            bound = math.log(claim.value) if claim.scale == "ratio" else claim.value
            difference = interval(sample.to_numpy() - bound)
            found.append(made(claim, model, "", ours, None, difference, notes))
        for other in claim.against:
            theirs, remarks = values(claim, other, results)
            a, b = scaled(ours, claim), scaled(theirs, claim)
            shared = a.index.intersection(b.index)
            if len(shared) or not (len(a) and len(b)):
                difference = paired(a.loc[shared].to_numpy(), b.loc[shared].to_numpy())
            else:
                difference = unpaired(a.to_numpy(), b.to_numpy())
            found.append(made(claim, model, other, ours, theirs, difference, (*notes, *remarks)))
    return found


def made(
    claim: Claim,
    model: str,
    against: str,
    ours: pd.Series,
    theirs: pd.Series | None,
    difference: Interval,
    notes: tuple[str, ...],
) -> Comparison:
    """A comparison with its two p-values."""
    if claim.kind == "greater":
        p_for, p_contrary = difference.p_above(claim.margin), difference.p_below(claim.margin)
    elif claim.kind == "less":
        p_for, p_contrary = difference.p_below(-claim.margin), difference.p_above(-claim.margin)
    else:
        p_for, p_contrary = difference.p_within(claim.margin), difference.p_outside(claim.margin)
    return Comparison(
        model,
        against,
        claim.value,
        spread(ours),
        None if theirs is None else spread(theirs),
        difference,
        p_for,
        p_contrary,
        notes,
        claim.scale,
    )


def values(claim: Claim, model: str, results: Results) -> tuple[pd.Series, tuple[str, ...]]:
    """Returns seed → value of a claim's metric for a model, and remarks on the runs behind them."""
    asked = subject(claim, results.study)
    name = claim.metric or asked.metric
    rows = results.runs
    if len(rows):
        rows = rows[(rows["task"] == claim.task) & (rows["model"] == model)]
    if not len(rows):
        return pd.Series(dtype=float), (f"{label(model, claim, results.study)} was not run",)
    column = scored(rows, name, asked.metric, asked.floors)
    column.index = pd.Index(rows["seed"])
    status = pd.Series(rows["status"].to_numpy(), index=column.index)
    ended = status.isin([DONE, DIVERGED])
    shown, notes = label(model, claim, results.study), list[str]()
    diverged = int((status == DIVERGED).sum())
    if diverged and name == asked.metric and asked.floors:
        floor, value = next(iter(asked.floors.items()))
        notes.append(f"{diverged} of {shown} diverged and count as “{floor}”, {value:g}")
    lost = [int(seed) for seed in status.index[~ended]]
    if lost:
        notes.append(f"{shown} lacks the seeds {', '.join(map(str, lost))}")
    # A logarithm has no place for 0, and none of these runs may be left out in silence.
    usable = np.isfinite(column) & ((column > 0) | (claim.scale != "ratio"))
    if bare := int((ended & ~usable).sum()):
        notes.append(f"{bare} of {shown} ended without a usable {name}")
    return column[usable], tuple(notes)


def label(model: str, claim: Claim, study: Study) -> str:
    """A model's label; a measurement's row has its own name for one."""
    known = claim.task in study.tasks and model in study.models
    return study.models[model].label if known else model.replace("_", " ")


def subject(claim: Claim, study: Study) -> Task | Measurement:
    """The task or the measurement that a claim is about."""
    return study.tasks[claim.task] if claim.task in study.tasks else study.measurements[claim.task]


def scaled(sample: pd.Series, claim: Claim) -> pd.Series:
    """Values as they are compared: their logarithms for a ratio."""
    return np.log(sample) if claim.scale == "ratio" else sample


def spread(sample: pd.Series) -> tuple[float, float]:
    """Mean and standard deviation, NaN where there is none."""
    deviation = float(sample.std(ddof=1)) if len(sample) > 1 else math.nan
    return (float(sample.mean()) if len(sample) else math.nan), deviation


def verdict(
    claim: Claim, comparisons: tuple[Comparison, ...], grid: tuple[Comparison, ...], results: Results
) -> Verdict:
    """Puts a claim's comparisons, p-values adjusted, into one answer."""
    reduced = claim.published_size and not results.study.presets[results.preset].published_size
    kinds = [one.kind for one in comparisons]
    kind: Kind = "not settled"
    why = ""
    if "does not hold" in kinds:
        kind = "does not hold"
    elif kinds and all(one == "holds" for one in kinds):
        kind = "holds"
    elif any(one.difference.count == 0 for one in comparisons):
        why = "no values in this preset"
    elif any(one.difference.count < SEEDS for one in comparisons):
        why = f"fewer than {SEEDS} seeds"
    elif any(not clear(one.difference, claim) for one in comparisons):
        why = "an interval reaches across the margin"
    else:
        why = "not clear enough for so many comparisons"
    if kind == "does not hold" and claim.unpublished:
        failed = {one.model for one in grid if one.kind == "does not hold"}
        if not claim.grid or failed != set(claim.grid):
            kind, why = "not settled", f"unpublished settings ({claim.unpublished})"
    words = f"{kind}: {why}" if why else kind
    if reduced:
        words = f"at reduced size: {words}"
    return Verdict(kind, reduced, words, grounds(claim, comparisons, results.study), comparisons)


def clear(difference: Interval, claim: Claim) -> bool:
    """Whether the interval, not corrected for other comparisons, lies on one side of the margin."""
    low, high, margin = difference.low, difference.high, claim.margin
    if claim.kind == "equal":
        return (-margin < low and high < margin) or low > margin or high < -margin
    edge = margin if claim.kind == "greater" else -margin
    return low > edge or high < edge


def grounds(claim: Claim, comparisons: tuple[Comparison, ...], study: Study) -> str:
    """The numbers of a claim's comparisons, in a sentence each."""
    name = claim.metric or subject(claim, study).metric
    sentences = [sentence(one, claim, study, name) for one in comparisons if one.difference.count]
    notes = list(dict.fromkeys(note for one in comparisons for note in one.notes))
    if claim.margin:
        of_a_ratio = claim.scale == "ratio"
        shown = f"a factor of {math.exp(claim.margin):.3g}" if of_a_ratio else points(claim.margin, name)
        sentences.append(f"Margin: {shown}")
    return ". ".join([*sentences, *notes]) + "."


def sentence(one: Comparison, claim: Claim, study: Study, name: str) -> str:
    """A comparison in words."""
    name_of = {model: label(model, claim, study) for model in (one.model, one.against)}
    shown = f"{name_of[one.model]} {number(one.ours[0], name)} ± {number(one.ours[1], name)}"
    if one.theirs is not None:
        shown += (
            f" against {name_of[one.against]} {number(one.theirs[0], name)} ± {number(one.theirs[1], name)}"
        )
    elif one.value is not None:
        shown += f" against {number(one.value, name)}"
    shown += f" (n = {one.difference.count}"
    if math.isnan(one.difference.low):
        return shown + ")"
    mean, low, high = one.difference.mean, one.difference.low, one.difference.high
    if one.scale == "ratio":
        effect = f"ratio {math.exp(mean):.3g} [{math.exp(low):.3g}, {math.exp(high):.3g}]"
    else:
        effect = f"difference {points(mean, name)} [{points(low, name, '')}, {points(high, name, '')}]"
    p = min(one.p_for, one.p_contrary)
    return f"{shown}; {effect}; adjusted p {'< .001' if p < 0.001 else f'= {p:.3f}'})"


def number(value: float, name: str) -> str:
    """A value of a metric as people read it: accuracies in per cent."""
    if math.isnan(value):
        return "–"
    if is_accuracy(name):
        return f"{100 * value:.2f} %"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e4):
        return f"{value:.2e}"
    return f"{value:.4g}"


def points(value: float, name: str, unit: str = " points") -> str:
    """A difference of two values of a metric: of accuracies in percentage points."""
    shown = f"{100 * value:.2f}{unit}" if is_accuracy(name) else number(value, name)
    return shown.replace("-", "−", 1) if value < 0 else shown


def is_accuracy(name: str) -> bool:
    """Whether a metric, or a difference of two, is a share of samples that are classified correctly."""
    return all(part.endswith("acc") or "certified_acc" in part for part in name.split(" - "))


def tally(verdicts: Mapping[str, Verdict]) -> dict[str, int]:
    """How many claims hold, do not, and are not settled."""
    kinds = [one.kind for one in verdicts.values()]
    return {kind: kinds.count(kind) for kind in ("holds", "does not hold", "not settled")}
