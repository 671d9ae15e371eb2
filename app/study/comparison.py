"""A page that compares any runs: metrics, the settings that differ, curves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import yaml
from matplotlib.figure import Figure

from app.errors import Mistake
from app.study import figures, tables
from app.study.collect import read_curves
from app.study.page import Writer
from app.study.verdicts import number

SEEDS = ("seed_everything", "data.init_args.seed", "data.init_args.data_seed")
"""Settings by which repetitions of one experiment differ."""

PLACES = ("experiment", "trainer.default_root_dir", "include", "ckpt_path")
"""Settings that say where a run lies, not what it is."""


@dataclass(frozen=True)
class Recorded:
    """A run as its folder has it.

    Args:
        folder: Where.
        settings: Dotted setting → value.
        curves: ``metric``, ``step``, ``value``.
        tests: Metric → value, of the tested checkpoint.
    """

    folder: Path
    settings: Mapping[str, Any]
    curves: pd.DataFrame
    tests: Mapping[str, float]


def read(folder: Path) -> Recorded:
    """Reads a run's folder.

    Raises:
        Mistake: It holds no metrics.
    """
    curves = read_curves(folder)
    path = folder / "metrics.csv"
    tests: dict[str, float] = {}
    if path.is_file():
        table = pd.read_csv(path)
        tests = {str(n): float(table[n].dropna().iloc[-1]) for n in table if str(n).startswith("test/")
                 and table[n].notna().any()}  # fmt: skip
    if not len(curves) and not tests:
        raise Mistake(
            f"{folder} holds no metrics: a run's folder has a metrics.csv, as in runs/<name>/version_0"
        )
    config = folder / "config.yaml"
    content = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return Recorded(folder, dict(flat(content or {})), curves, tests)


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields dotted settings; lists stay whole."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing(runs: Sequence[Recorded]) -> list[str]:
    """The settings that are not the same in all runs."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in PLACES)
    return [
        name for name in names if len({json.dumps(run.settings.get(name), default=str) for run in runs}) > 1
    ]


def brief(name: str, value: Any, most: int = 40) -> str:
    """A setting in a group's name; the table of settings has the whole of it."""
    text = f"{name.rpartition('.')[2]} {value}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def write(folders: Sequence[Path], output: Path) -> Path:
    """Writes the page.

    Args:
        folders: Of runs.
        output: Where it goes.

    Returns:
        The HTML file.
    """
    runs = [read(folder) for folder in folders]
    settings = [name for name in differing(runs) if name not in SEEDS]
    groups: dict[str, list[Recorded]] = {}
    for run in runs:
        key = ", ".join(brief(name, run.settings.get(name)) for name in settings)
        experiment = str(run.settings.get("experiment") or run.folder.parent.name)
        groups.setdefault(f"{experiment}{': ' if key else ''}{key}", []).append(run)
    page = Writer(output)
    metrics = list(dict.fromkeys(str(name) for run in runs for name in run.curves["metric"].unique()))
    page.section(
        "Metrics",
        page.table("metrics", metrics_frame(groups, metrics)),
        page.table("runs", runs_frame(runs, metrics), "Every run", folded=True),
    )
    drawn = [name for name in metrics if name.startswith("val/")]
    page.section(
        "While training", *(page.figure(name.replace("/", "_"), curves(groups, name), name) for name in drawn)
    )
    different = pd.DataFrame(
        [
            {"setting": n, **{str(run.folder): str(run.settings.get(n)) for run in runs}}
            for n in differing(runs)
        ]
    )
    page.section("Settings that differ", page.table("settings", different))
    page.section("Versions", page.table("versions", versions_frame(runs), folded=True, title="Versions"))
    return page.write(
        title="Comparison of runs",
        about=f"{len(runs)} runs in {len(groups)} groups; runs that differ in their seeds alone are one.",
        command="python -m app report " + " ".join(map(str, folders)),
    )


def last(run: Recorded, name: str) -> float:
    """A metric's value at the last epoch."""
    values = run.curves[run.curves["metric"] == name]["value"]
    return float(values.iloc[-1]) if len(values) else float("nan")


def metrics_frame(groups: Mapping[str, list[Recorded]], metrics: Sequence[str]) -> pd.DataFrame:
    """Mean ± std (n) of each group: last epoch, then the tests."""
    rows = []
    for group, members in groups.items():
        row = {"runs": group}
        for name in metrics:
            row[f"{name}, last"] = tables.mean_std(pd.Series([last(run, name) for run in members]), name)
        for name in dict.fromkeys(name for run in members for name in run.tests):
            values = [run.tests.get(name, float("nan")) for run in members]
            row[f"{name}, best"] = tables.mean_std(pd.Series(values), name)
        rows.append(row)
    return pd.DataFrame(rows).fillna("–")


def runs_frame(runs: Sequence[Recorded], metrics: Sequence[str]) -> pd.DataFrame:
    """Each run by itself."""
    shown = [name for name in metrics if name.startswith("val/")]
    return pd.DataFrame(
        [{"run": str(run.folder), **{name: number(last(run, name), name) for name in shown}} for run in runs]
    )


def versions_frame(runs: Sequence[Recorded]) -> pd.DataFrame:
    """Versions and hardware of each run."""
    columns: dict[str, dict[str, str]] = {}
    for run in runs:
        path = run.folder / "environment.json"
        if path.is_file():
            content = json.loads(path.read_text(encoding="utf-8"))
            parts = [content.get(part) or {} for part in ("versions", "git", "hardware")]
            columns[str(run.folder)] = {key: str(value) for part in parts for key, value in part.items()}
    return pd.DataFrame(columns).rename_axis("what").reset_index() if columns else pd.DataFrame()


def curves(groups: Mapping[str, list[Recorded]], name: str) -> Figure:
    """One metric over training steps, a colour a group, at most eight of them in a panel."""
    entries = [*groups.items()]
    parts = [entries[i : i + figures.LINES] for i in range(0, len(entries), figures.LINES)]
    with mpl.rc_context(figures.STYLE):
        figure, axes = figures.panels(len(parts), 7.0, 3.6, 1)
        for axis, part in zip(axes, parts, strict=True):
            for place, (group, members) in enumerate(part):
                for place_in_group, run in enumerate(members):
                    mine = run.curves[run.curves["metric"] == name]
                    axis.plot(
                        mine["step"], mine["value"], color=figures.COLOURS[place], markersize=3,
                        marker=figures.MARKERS[place], linestyle=figures.DASHES[place % len(figures.DASHES)],
                        label=group if place_in_group == 0 else None,
                    )  # fmt: skip
            figures.finish(axis, "", "step", name, False)
            axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.2))
    return figure
