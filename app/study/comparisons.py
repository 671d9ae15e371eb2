"""A claim's comparisons: each model against another or against a value, seed by seed."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from app.study.plan import Claim, Measurement, Study, Task
from app.study.results import DIVERGED, DONE, Results, scored
from app.study.statistics import Interval, interval, paired, unpaired

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
    def p(self) -> float:
        """Of whichever answer; 1 with too few seeds for any."""
        return min(self.p_for, self.p_contrary) if self.difference.count >= SEEDS else 1.0

    @property
    def kind(self) -> Kind:
        """What this comparison alone says; its p-values are adjusted."""
        if self.difference.count < SEEDS:
            return "not settled"
        if self.p_for < ALPHA:
            return "holds"
        return "does not hold" if self.p_contrary < ALPHA else "not settled"


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
            both = (*notes, *remarks)
            if len(shared) or not (len(a) and len(b)):
                difference = paired(a.loc[shared].to_numpy(), b.loc[shared].to_numpy())
                pair = (ours.loc[shared], theirs.loc[shared])  # the means that are shown belong to it
                found.append(made(claim, model, other, *pair, difference, both))
            else:
                difference = unpaired(a.to_numpy(), b.to_numpy())
                found.append(made(claim, model, other, ours, theirs, difference, both))
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
    # Either answer could be found significant: a one-sided value counts twice, p_outside does so itself.
    if claim.kind == "greater":
        p_for, p_contrary = 2 * difference.p_above(claim.margin), 2 * difference.p_below(claim.margin)
    elif claim.kind == "less":
        p_for, p_contrary = 2 * difference.p_below(-claim.margin), 2 * difference.p_above(-claim.margin)
    else:
        p_for, p_contrary = 2 * difference.p_within(claim.margin), difference.p_outside(claim.margin)
    return Comparison(
        model,
        against,
        claim.value,
        spread(ours),
        None if theirs is None else spread(theirs),
        difference,
        min(1.0, p_for),
        min(1.0, p_contrary),
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


def planned(one: Comparison, claim: Claim, results: Results) -> bool:
    """Whether a preset runs both sides of a comparison."""
    tasks, models, measurements = results.study.chosen(results.preset)
    if claim.task in measurements:
        return True
    return claim.task in tasks and {one.model, one.against} - {""} <= set(models)
