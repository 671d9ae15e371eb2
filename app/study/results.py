"""What a study has to show so far, as tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from app.study.plan import Study

DONE, DIVERGED, FAILED, MISSING = "done", "diverged", "failed", "missing"

RUN_COLUMNS = ("task", "model", "seed", "status", "detail", "parameters", "steps", "seconds", "settings")
"""Columns of ``Results.runs`` that are no metrics."""


@dataclass(frozen=True)
class Results:
    """The outcome of a study, or of a part of it.

    Args:
        study: What was asked.
        preset: Which of its presets was run.
        claims_hash: Of the claims when the study began.
        runs: One row a task (or measurement), model and seed, missing ones too: ``task``, ``model``,
            ``seed``, ``status`` (one of ``DONE``, ``DIVERGED``, ``FAILED``, ``MISSING``), ``detail`` (the
            last line of a run that did not end well), ``parameters`` (trained), ``steps``, ``seconds`` (of
            the fit), ``settings`` (what the tuning chose and what sizes were matched, as text), and one
            column a metric: ``val/acc`` of the last epoch, ``test/acc`` of the last weights,
            ``best/test/acc`` of the checkpoint with the best validation, ``diagnostics/<metric>/<layer>`` as
            last recorded. NaN where a run has no such metric.
        curves: ``task``, ``model``, ``seed``, ``metric``, ``step``, ``value``: metrics once an epoch.
        tuning: ``task``, ``model``, ``learning_rate``, ``schedule``, ``status``, ``value``, ``chosen``.
        environment: Versions, hardware, commit.
        command: That repeats the study.
        candidate: Name of the outside model among the models, if one was put in.
    """

    study: Study
    preset: str
    claims_hash: str
    runs: pd.DataFrame
    curves: pd.DataFrame
    tuning: pd.DataFrame
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    candidate: str = ""


def scored(runs: pd.DataFrame, name: str, judged: str, floors: Mapping[str, float]) -> pd.Series:
    """A metric's values as they are judged: a run that diverged counts as the first floor.

    Args:
        runs: Of one task.
        name: The metric.
        judged: The one by which the task's models are compared, to which alone the floors belong.
        floors: Predictor → its value, the trivial one first.

    Returns:
        One value a run, NaN for one that is missing or failed.
    """
    column = metric(runs, name).astype(float).copy()
    if len(runs):
        column[~runs["status"].isin([DONE, DIVERGED])] = float("nan")
        if floors and name in (judged, f"best/{judged}"):
            column[runs["status"] == DIVERGED] = next(iter(floors.values()))
    return column


def metric(runs: pd.DataFrame, name: str) -> pd.Series:
    """The column of a metric, or the difference of two, ``a - b``; NaN where no run has it."""
    first, minus, second = name.partition(" - ")
    column = runs[first] if first in runs else pd.Series(float("nan"), index=runs.index)
    return column - metric(runs, second) if minus else column
