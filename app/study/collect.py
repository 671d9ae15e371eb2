"""Reads what a study has left in its folder."""

import math
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from app.callbacks import read_diagnostics
from app.errors import Mistake
from app.study import plan, reading, work
from app.study.results import DIVERGED, Results
from app.study.runs import Pair, Point, Run, final_runs, grid, tuned, tuning_runs
from app.study.session import FILE
from app.study.tuning import chosen, ended, reached

CURVES = ("task", "model", "seed", "metric", "step", "value")
TUNING = ("task", "model", "learning_rate", "schedule", "status", "value", "chosen")


def collect(folder: Path) -> Results:
    """Returns what is there of a study, at any moment of it.

    Raises:
        Mistake: The folder is none of a study.
    """
    asked = work.read(folder / FILE)
    if asked is None:
        raise Mistake(f"{folder} holds no study: there is no {FILE} in it")
    study = reading.restore(asked["study"], str(folder))
    preset: str = asked["preset"]
    sizes = {tuple(pair.split("/")): sized for pair, sized in asked["sizes"].items()}
    settings = {pair: sized["settings"] for pair, sized in sizes.items()}
    points = chosen(study, preset, settings, folder)
    rows: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for run in every_run(study, preset, settings, points):
        where = folder / run.path
        result = ended(run, folder)
        if run.kind == "measure":
            for row in measured(study, preset, run, result):
                drawn = {name: row.pop(name) for name, value in [*row.items()] if isinstance(value, list)}
                rows.append(row)
                curves += [as_curve(row, name, pairs) for name, pairs in drawn.items()]
            continue
        pair = (run.task, run.model)
        explained = {key.rpartition(".")[2]: value for key, value in settings[pair].items()}
        if pair in points:
            explained |= {"lr": points[pair].learning_rate, "schedule": points[pair].schedule}
        curve = read_curves(where)
        rows.append(
            {
                "task": run.task,
                "model": run.model,
                "seed": run.seed,
                "status": result["status"],
                "detail": result.get("detail", ""),
                "parameters": sizes[pair]["parameters"],
                "steps": result.get("steps", math.nan),
                "seconds": result.get("seconds", math.nan),
                "settings": ", ".join(f"{key} {value}" for key, value in explained.items()),
                "diverged": float(result["status"] == DIVERGED),
                **last_values(curve),
                **last_diagnostics(where),
                **result.get("metrics", {}),
            }
        )
        if len(curve):
            curves.append(curve.assign(task=run.task, model=run.model, seed=run.seed)[list(CURVES)])
    tuning = list(tuned_points(study, preset, settings, points, folder))
    return Results(
        study=study,
        preset=preset,
        claims_hash=asked["claims_hash"],
        runs=pd.DataFrame(rows),
        curves=pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=list(CURVES)),
        tuning=pd.DataFrame(tuning, columns=list(TUNING)),
        environment=environment(folder),
        command=asked["command"],
        candidate=asked["candidate"],
    )


def every_run(
    study: plan.Study, preset: str, sizes: dict[Pair, plan.Settings], points: dict[Pair, Point]
) -> Iterator[Run]:
    """Yields every run that is judged, those whose tuning has not ended too."""
    stand_in = grid(study.tuning)[0] if study.tuning is not None else None
    full = {pair: points.get(pair, stand_in) for pair in tuned(study, preset)}
    yield from final_runs(study, preset, sizes, {}, {pair: point for pair, point in full.items() if point})


def measured(study: plan.Study, preset: str, run: Run, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields one row a measurement of a call, and a model of it."""
    _, _, measurements = study.chosen(preset)
    common = {
        "seed": run.seed,
        "status": result["status"],
        "settings": "",
        "detail": result.get("detail", ""),
    }
    common["seconds"] = result.get("seconds", math.nan)
    for name, measurement in measurements.items():
        if (measurement.run or name) == run.task:
            values = result.get("values", {})
            models = values.get(name, {}) if measurement.run else values
            for model, metrics in (models or {"": {}}).items():
                yield {**common, "task": name, "model": model, **metrics}


def as_curve(row: dict[str, Any], metric: str, pairs: list[list[float]]) -> pd.DataFrame:
    """Pairs that a measurement returned, as a curve: the first of each as its step."""
    table = pd.DataFrame(pairs, columns=["step", "value"])
    return table.assign(metric=metric, **{name: row[name] for name in ("task", "model", "seed")})[
        list(CURVES)
    ]


def read_curves(folder: Path) -> pd.DataFrame:
    """A run's metrics once an epoch, ``metric``, ``step``, ``value``."""
    path = folder / "metrics.csv"
    empty = pd.DataFrame(columns=["metric", "step", "value"])
    if not path.is_file():
        return empty
    table = pd.read_csv(path)
    columns = [name for name in table if name.startswith(("train/", "val/")) and name not in PER_STEP]
    if not columns:
        return empty
    long = table.melt("step", columns, "metric", "value").dropna(subset=["value"])
    return long[["metric", "step", "value"]]


PER_STEP = ("train/batch_loss", "train/lr", "train/penalty")
"""Metrics that are logged at steps and not once an epoch."""


def last_values(curve: pd.DataFrame) -> dict[str, float]:
    """The value of each metric at the last epoch."""
    if not len(curve):
        return {}
    return {str(name): float(value) for name, value in curve.groupby("metric")["value"].last().items()}


def last_diagnostics(folder: Path) -> dict[str, float]:
    """The last value of each scalar diagnostic; of several layers the first, last, mean, min and max."""
    try:
        table = read_diagnostics(folder)
    except FileNotFoundError:
        return {}
    table = table[(table["stage"] == "fit") & table["values"].isna()]
    values: dict[str, float] = {}
    for metric, rows in table.groupby("metric"):
        name = str(metric) if "/" in str(metric) else f"diagnostics/{metric}"
        last = rows[rows["step"] == rows["step"].max()].sort_values("layer")["value"]
        if len(last) == 1:
            values[name] = float(last.iloc[0])
        else:
            ends = {"first": last.iloc[0], "last": last.iloc[-1]}
            spread = {"mean": last.mean(), "min": last.min(), "max": last.max()}
            values |= {f"{name}/{which}": float(value) for which, value in {**ends, **spread}.items()}
    return values


def tuned_points(
    study: plan.Study, preset: str, sizes: dict[Pair, plan.Settings], points: dict[Pair, Point], folder: Path
) -> Iterator[tuple[Any, ...]]:
    """Yields a row a tuning run."""
    for run in tuning_runs(study, preset, sizes, {}):
        result = ended(run, folder)
        if run.point is None or study.tuning is None:
            continue
        value = reached(study.tuning, result)
        picked = points.get((run.task, run.model)) == run.point
        point = run.point
        yield (run.task, run.model, point.learning_rate, point.schedule, result["status"], value, picked)


def environment(folder: Path) -> dict[str, str]:
    """Versions, hardware and commit, from the first run that noted them."""
    noted = next(iter(sorted(folder.glob("*/*/seed_*/environment.json"))), None)
    content = (work.read(noted) if noted is not None else None) or {}
    # A part is empty where there is nothing to note, as git is outside of a repository.
    parts = [content.get(part) or {} for part in ("versions", "git", "hardware")]
    shown = {key: value for part in parts for key, value in part.items()}
    return {"platform": platform.platform(), **{key: str(value) for key, value in shown.items()}}
