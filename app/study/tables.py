"""The tables of a page, as frames of text; the numbers behind them go to CSV."""

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.study.plan import Exhibit, Measurement, Study, Task
from app.study.results import DIVERGED, DONE, FAILED, MISSING, Results, metric, scored
from app.study.statistics import interval
from app.study.verdicts import is_accuracy, number

CHANCE = 0.02
"""How far above a trivial predictor's accuracy still counts as chance."""

FELL = 0.1
"""How far the last epoch's accuracy lies below the best where a run collapsed."""


def asked(results: Results) -> dict[str, Task | Measurement]:
    """The tasks and measurements of the preset, by name."""
    tasks, _, measurements = results.study.chosen(results.preset)
    return {**tasks, **measurements}


def label(study: Study, task: str, model: str) -> str:
    """A model's label; a measurement's row has its own name for one."""
    known = task in study.tasks and model in study.models
    return study.models[model].label if known else model.replace("_", " ")


def rows_of(results: Results, task: str) -> pd.DataFrame:
    """The runs of a task."""
    return results.runs[results.runs["task"] == task] if len(results.runs) else results.runs


def values(results: Results, task: str, name: str, model: str = "") -> pd.Series:
    """A metric of a task's runs, of one model's if it is named, as it is judged."""
    about, rows = asked(results)[task], rows_of(results, task)
    mine = rows[rows["model"] == model] if model else rows
    return scored(mine, name, about.metric, about.floors)


def order(results: Results, task: str, name: str, models: list[str] | None = None) -> list[str]:
    """The models of a task, best mean first, those without a value last."""
    rows = rows_of(results, task)
    if not len(rows):
        return []
    means = values(results, task, name).groupby(rows["model"]).mean()
    if models:
        means = means[[model for model in models if model in means.index]]
    better = asked(results)[task].better if task in asked(results) else "higher"
    ranked = means.sort_values(ascending=better == "lower", na_position="last")
    return [str(model) for model in ranked.index if model]


def mean_std(sample: pd.Series, name: str) -> str:
    """``mean ± std (n)``."""
    known = sample[np.isfinite(sample.astype(float))].astype(float)
    if not len(known):
        return "–"
    if len(known) == 1:
        return f"{number(float(known.iloc[0]), name)} (1)"
    return f"{number(float(known.mean()), name)} ± {number(float(known.std(ddof=1)), name)} ({len(known)})"


def interval_text(sample: pd.Series, name: str) -> str:
    """The 95 % t-interval of a mean."""
    found = interval(sample[np.isfinite(sample.astype(float))].astype(float).to_numpy())
    if math.isnan(found.low):
        return "–"
    return f"{number(found.low, name)} … {number(found.high, name)}"


def task_table(results: Results, task: str) -> pd.DataFrame:
    """Every model of a task with everything that one compares it by, best first, then the floors."""
    study, about, rows = results.study, asked(results)[task], rows_of(results, task)
    name = about.metric
    train = name.replace("test/", "train/")
    table = []
    for model in order(results, task, name):
        mine = rows[rows["model"] == model]
        column = values(results, task, name, model)
        row = {
            "model": label(study, task, model),
            "parameters": count(mine),
            f"{name}, last": mean_std(column, name),
            "95 % interval": interval_text(column, name),
        }
        if isinstance(about, Task):
            row["best epoch's"] = mean_std(values(results, task, f"best/{name}", model), name)
            row[train] = mean_std(values(results, task, train, model), name)
            row["what happened"] = happened(results, task, model)
            row["s / 100 steps"] = speed(mine)
            row["settings found"] = str(mine["settings"].iloc[0])
        table.append(row)
    for floor, value in about.floors.items():
        table.append({"model": f"({floor})", f"{name}, last": number(value, name)})
    table += published(results, task, [name, train])
    return pd.DataFrame(table).fillna("")


def published(results: Results, task: str, names: list[str]) -> list[dict[str, str]]:
    """A row for each source and model of which a claim gives values, for a task's table."""
    study, about = results.study, asked(results)[task]
    rows: dict[str, dict[str, str]] = {}
    for claim in study.claims.values():
        name = claim.metric or about.metric
        if claim.task != task or claim.kind != "equal" or claim.value is None or claim.source == "ours":
            continue
        if name in names:
            title = f"(published for: {', '.join(label(study, task, model) for model in claim.models)})"
            column = f"{name}, last" if name == names[0] else name
            rows.setdefault(title, {"model": title})[column] = number(claim.value, name)
    return list(rows.values())


def count(rows: pd.DataFrame) -> str:
    """Trained parameters of a model."""
    known = metric(rows, "parameters").dropna()
    return f"{int(known.iloc[0]):,}" if len(known) else "–"


def speed(rows: pd.DataFrame) -> str:
    """Seconds for 100 optimizer steps, validation included: the median over the seeds."""
    each = 100 * metric(rows, "seconds").astype(float) / metric(rows, "steps").astype(float)
    return f"{each.median():.2g}" if each.notna().any() else "–"


def happened(results: Results, task: str, model: str) -> str:
    """How the runs of a model went, by their validation curves and their end."""
    about, rows = asked(results)[task], rows_of(results, task)
    words: dict[str, int] = {}
    curves = results.curves
    name = about.metric.replace("test/", "val/")
    for row in rows[rows["model"] == model].itertuples():
        word = {DIVERGED: "diverged (not finite)", FAILED: "failed", MISSING: "missing"}.get(row.status, "")
        if not word:
            mine = curves[
                (curves["task"] == task) & (curves["model"] == model) & (curves["seed"] == row.seed)
            ]
            curve = mine[mine["metric"] == name].sort_values("step")["value"].to_numpy(dtype=float)
            word = course(curve, about)
        words[word] = words.get(word, 0) + 1
    if len(words) == 1:
        return next(iter(words))
    return ", ".join(f"{word} × {times}" for word, times in words.items())


def course(curve: NDArray[np.float64], about: Task | Measurement) -> str:
    """One run's course in a word; nothing is said of metrics for which no word is known."""
    if not len(curve):
        return "–"
    floor = next(iter(about.floors.values()), math.nan)
    if about.better == "lower":
        return "no better than trivial" if curve[-1] >= 0.98 * floor else "better than trivial"
    if not is_accuracy(about.metric):
        return "–"
    if curve.max() <= floor + CHANCE:
        return "chance"
    if curve[-1] < curve.max() - FELL:
        return "collapsed" if curve[-1] <= floor + 5 * CHANCE else "fell back"
    return "trains" if curve[-1] > 0.5 else "slow"


def raw_table(results: Results, tasks: list[str], names: list[str], models: list[str]) -> pd.DataFrame:
    """The numbers behind a table of models × metrics: one row a task, model and metric."""
    rows = []
    for task in tasks:
        if task not in asked(results):
            continue
        for model in models or order(results, task, asked(results)[task].metric):
            for name in names:
                sample = values(results, task, name, model)
                found = interval(sample[np.isfinite(sample)].to_numpy())
                row = {"task": task, "model": model, "metric": name, "n": found.count, "mean": found.mean}
                spread = sample.std(ddof=1) if found.count > 1 else math.nan
                rows.append({**row, "std": spread, "low": found.low, "high": found.high})
    frame = pd.DataFrame(rows)
    return frame[frame["n"] > 0] if len(frame) else frame


def seeds_table(results: Results, task: str) -> pd.DataFrame:
    """Every seed's value of the task's metric."""
    about, rows = asked(results)[task], rows_of(results, task)
    table = []
    for model in order(results, task, about.metric):
        mine = rows[rows["model"] == model]
        column = metric(mine, about.metric).astype(float)
        row: dict[str, str] = {"model": label(results.study, task, model)}
        for seed, status, value in zip(mine["seed"], mine["status"], column, strict=True):
            row[f"seed {seed}"] = number(value, about.metric) if status == DONE else str(status)
        table.append(row)
    return pd.DataFrame(table).fillna("")


def tuning_table(results: Results) -> pd.DataFrame:
    """Every point of the grid with what it reached; the chosen one is marked."""
    if not len(results.tuning) or results.study.tuning is None:
        return pd.DataFrame()
    name = results.study.tuning.metric
    table = []
    for (task, model), points in results.tuning.groupby(["task", "model"], sort=False):
        row = {"task": str(task), "model": label(results.study, str(task), str(model))}
        for point in points.itertuples():
            shown = number(point.value, name) if point.status == DONE else point.status
            row[f"{point.learning_rate:g}, {point.schedule}"] = f"{shown} ◄" if point.chosen else shown
        table.append(row)
    return pd.DataFrame(table).fillna("")


def exhibit_table(results: Results, exhibit: Exhibit) -> pd.DataFrame:
    """Models × metrics, one block of rows a task."""
    table = []
    for task in exhibit.tasks:
        rows = rows_of(results, task)
        if task not in asked(results) or not len(rows):
            continue
        for model in exhibit.models or order(results, task, asked(results)[task].metric):
            mine = rows[rows["model"] == model]
            if not len(mine):
                continue
            row = {"task": asked(results)[task].label} if len(exhibit.tasks) > 1 else {}
            row["model"] = label(results.study, task, model)
            for name in exhibit.metrics:
                row[short(name)] = mean_std(values(results, task, name, model), name)
            table.append(row)
    frame = pd.DataFrame(table)
    empty = [name for name in frame if (frame[name] == "–").all()]
    return frame.drop(columns=empty)


def short(name: str) -> str:
    """A metric's name as a heading."""
    return name.replace("diagnostics/", "").replace("_", " ")


def lost_table(results: Results) -> pd.DataFrame:
    """Runs that are missing, failed or diverged, with their last line."""
    runs = results.runs
    if not len(runs):
        return pd.DataFrame()
    lost = runs[runs["status"] != DONE]
    paths = lost["task"] + "/" + lost["model"] + "/seed_" + lost["seed"].astype(str)
    return pd.DataFrame({"run": paths, "state": lost["status"], "last line": lost["detail"]}).fillna("")


def notes_table(results: Results) -> pd.DataFrame:
    """What a reader must know about models."""
    _, models, _ = results.study.chosen(results.preset)
    noted = {model.label: model.note for model in models.values() if model.note}
    return pd.DataFrame({"model": noted.keys(), "note": noted.values()})
