"""The figures of a page. Colours are Okabe and Ito's, told apart without colour too by marker and dash."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from app.study.plan import Exhibit
from app.study.results import Results, metric
from app.study.statistics import interval
from app.study.tables import asked, label, order, rows_of, short
from app.study.tables import values as judged
from app.study.verdicts import is_accuracy

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#7F7F7F")
MARKERS = "os^Dv<>P"
DASHES = ("-", "--", "-.", ":")
LINES = len(COLOURS)
"""At most so many in a panel."""

INK = "#010203"
"""Stands for the colour of text, which the page decides."""

GREY = "#7d8590"
"""Ink that is read on white and on black, for files whose background is unknown."""

STYLE = {
    "font.size": 9.0,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
}


def save(figure: Figure, folder: Path, name: str) -> str:
    """Writes a figure as SVG and PDF.

    Returns:
        The SVG for a page, whose text has the page's colour.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.pdf", bbox_inches="tight", metadata={"CreationDate": None})
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    (folder / f"{name}.svg").write_text(drawn.replace(INK, GREY), encoding="utf-8")
    return drawn.replace(INK, "currentColor")


def draw(results: Results, exhibit: Exhibit) -> Figure | None:
    """The figure of an exhibit; ``None`` where there is nothing to draw yet."""
    tasks = [task for task in exhibit.tasks if task in asked(results) and len(rows_of(results, task))]
    if not tasks:
        return None
    with mpl.rc_context(STYLE):
        if exhibit.kind == "bars":
            return dots(results, tasks, exhibit.metrics[0], exhibit.models, exhibit.log)
        if exhibit.kind == "curves":
            return curves(results, tasks, exhibit)
        if exhibit.kind == "trend":
            return trend(results, tasks, exhibit)
        if exhibit.kind == "points":
            return points(results, tasks, exhibit)
        return scatter(results, tasks, exhibit)


def panels(count: int, width: float = 4.2, height: float = 3.0, most: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure with some panels, at most ``most`` in a row."""
    columns = min(count, most)
    lines = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    axes = list(np.ravel(figure.subplots(lines, columns, squeeze=False)))
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def dots(
    results: Results, tasks: Sequence[str], name: str, models: list[str] | None = None, log: bool = False
) -> Figure | None:
    """A row a model: a dot a seed, a bar at the mean, a line over its 95 % interval, lines at the floors.

    The axis is logarithmic where that is asked, and where values differ by a factor of more than 30.
    """
    shown = {task: order(results, task, name, models)[::-1] for task in tasks}
    tallest = max(map(len, shown.values()))
    if not tallest:
        return None
    lines = max(len(asked(results)[task].floors) for task in tasks)
    figure, axes = panels(len(tasks), 6.8, 1.2 + 0.26 * tallest + 0.13 * lines, 2)
    factor = 100 if is_accuracy(name) else 1
    for axis, task in zip(axes, tasks, strict=True):
        drawn: list[float] = []
        for place, model in enumerate(shown[task]):
            values = factor * judged(results, task, name, model).to_numpy()
            drawn += [value for value in values if np.isfinite(value)]
            colour = COLOURS[1] if model == results.candidate else COLOURS[0]
            axis.plot(
                values, np.full(len(values), place), "o", color=colour, alpha=0.5, markersize=5, mec="none"
            )
            if np.isfinite(values).any():
                mean = float(np.nanmean(values))
                spread = interval(values[np.isfinite(values)])
                axis.plot([spread.low, spread.high], [place, place], color=colour, linewidth=1.2)
                axis.plot([mean], [place], "|", color=colour, markersize=13, markeredgewidth=2.2)
        axis.set_yticks(range(len(shown[task])), [label(results.study, task, model) for model in shown[task]])
        axis.set_ylim(-0.7, len(shown[task]) - 0.3)
        wide = bool(drawn) and min(drawn) > 0 and max(drawn) > 30 * min(drawn)
        logarithmic = log or wide
        floors = asked(results)[task].floors if name == asked(results)[task].metric else {}
        for place, (floor, value) in enumerate(floors.items()):
            named = f"{floor}: {factor * value:.3g}"
            at = math.nan if logarithmic and value <= 0 else factor * value  # off a logarithmic axis
            axis.axvline(at, color=INK, linestyle=DASHES[1 + place % 3], linewidth=0.8, label=named)
        axis.set_title(asked(results)[task].label)
        axis.set_xlabel(heading(name))
        axis.grid(axis="x", alpha=0.25)
        if logarithmic:
            axis.set_xscale("log")
        if floors:
            beneath(axis, 1)
    return figure


def heading(name: str) -> str:
    """A metric with its unit."""
    return f"{short(name)}, %" if is_accuracy(name) else short(name)


def curves(results: Results, tasks: Sequence[str], exhibit: Exhibit) -> Figure | None:
    """The first metric over training steps: the mean of the seeds, each seed thin behind it."""
    name = exhibit.metrics[0]
    known = results.curves[results.curves["metric"] == name]
    groups: list[tuple[str, list[str]]] = []
    for task in tasks:
        have = set(known[known["task"] == task]["model"])
        models = [m for m in exhibit.models or order(results, task, asked(results)[task].metric) if m in have]
        size = max(1, -(-len(models) // max(1, -(-len(models) // LINES))))
        groups += [(task, models[i : i + size]) for i in range(0, len(models), size)]
    if not groups:
        return None
    figure, axes = panels(len(groups), 5.4, 3.6, 2)
    factor = 100 if is_accuracy(name) else 1
    for axis, (task, models) in zip(axes, groups, strict=True):
        for place, model in enumerate(models):
            mine = known[(known["task"] == task) & (known["model"] == model)]
            for _, one in mine.groupby("seed"):
                axis.plot(one["step"], factor * one["value"], color=COLOURS[place], alpha=0.25, linewidth=0.7)
            mean = mine.groupby("step")["value"].mean()
            axis.plot(
                mean.index, factor * mean, color=COLOURS[place], marker=MARKERS[place], markersize=4,
                linestyle=DASHES[place % len(DASHES)], label=label(results.study, task, model),
            )  # fmt: skip
        finish(axis, f"{asked(results)[task].label}", "step", heading(name), exhibit.log)
        beneath(axis, 2)
    return figure


def trend(results: Results, tasks: Sequence[str], exhibit: Exhibit) -> Figure:
    """The first metric over a quantity that the exhibit gives for each model."""
    name = exhibit.metrics[0]
    figure, axes = panels(len(tasks), 5.0, 3.4, 2)
    factor = 100 if is_accuracy(name) else 1
    for axis, task in zip(axes, tasks, strict=True):
        rows = rows_of(results, task)
        for place, (line, at) in enumerate(exhibit.x.items()):
            known = rows[rows["model"].isin(list(at))]
            x = known["model"].map(at).astype(float)
            y = factor * metric(known, name).astype(float)
            mean = y.groupby(x).mean()
            axis.plot(x, y, MARKERS[place], color=COLOURS[place], alpha=0.35, markersize=4, mec="none")
            style = DASHES[place % len(DASHES)]
            axis.plot(
                mean.index, mean, color=COLOURS[place], linestyle=style, marker=MARKERS[place], label=line
            )
        axis.set_xscale("log")
        ticks = sorted({place for at in exhibit.x.values() for place in at.values()})
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        finish(axis, asked(results)[task].label, exhibit.x_label, heading(name), exhibit.log)
        beneath(axis, 2)
    return figure


def scatter(results: Results, tasks: Sequence[str], exhibit: Exhibit) -> Figure:
    """The second metric over the first, a marker a task or, for one task, a model; a dot a run."""
    figure, (axis,) = panels(1, 6.2, 4.2)
    first, second = exhibit.metrics[:2]
    groups: list[tuple[str, pd.DataFrame]] = []
    for task in tasks:
        rows = rows_of(results, task)
        models = exhibit.models or order(results, task, asked(results)[task].metric)
        for model in models:
            name = label(results.study, task, model)
            shown = asked(results)[task].label if len(tasks) > 1 else name
            if len(tasks) > 1 and len(models) > 1:
                shown = f"{shown}, {name}"
            groups.append((shown, rows[rows["model"] == model]))
    for place, (name, rows) in enumerate(groups):
        axis.plot(
            metric(rows, first).astype(float), metric(rows, second).astype(float),
            MARKERS[place % len(MARKERS)], color=COLOURS[place % LINES], alpha=0.8, label=name,
            fillstyle="full" if place < LINES else "none",
        )  # fmt: skip
    finish(axis, "", heading(first), heading(second), exhibit.log)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def points(results: Results, tasks: Sequence[str], exhibit: Exhibit) -> Figure | None:
    """Pairs that a measurement returned, with the diagonal; the first seed's."""
    name = exhibit.metrics[0]
    known = results.curves[results.curves["metric"] == name]
    tasks = [task for task in tasks if (known["task"] == task).any()]
    if not tasks:
        return None
    figure, axes = panels(len(tasks), 3.4, 3.3, 3)
    for axis, task in zip(axes, tasks, strict=True):
        mine = known[known["task"] == task]
        mine = mine[mine["seed"] == mine["seed"].min()]
        ends = (float(mine["step"].min()), float(mine["step"].max()))
        axis.plot(ends, ends, color=INK, linewidth=0.7)
        for place, model in enumerate(exhibit.models or order(results, task, asked(results)[task].metric)):
            one = mine[mine["model"] == model]
            axis.plot(
                one["step"], one["value"], MARKERS[place % len(MARKERS)], color=COLOURS[place % LINES],
                markersize=3, alpha=0.6, mec="none", label=label(results.study, task, model),
            )  # fmt: skip
        room = 0.25 * (ends[1] - ends[0])
        axis.set_ylim(ends[0] - room, ends[1] + room)
        finish(axis, asked(results)[task].label, "true", "predicted", exhibit.log)
    axes[0].legend(fontsize=7, markerscale=2)
    return figure


def beneath(axis: Axes, columns: int) -> None:
    """A legend under the axis and its label, whatever its height: over no line, beside no neighbour."""
    down = ScaledTranslation(0, -0.45, axis.figure.dpi_scale_trans)  # inches
    axis.legend(
        fontsize=7, loc="upper left", ncols=columns, borderaxespad=0,
        bbox_to_anchor=(0, 0), bbox_transform=axis.transAxes + down,
    )  # fmt: skip


def finish(axis: Axes, title: str, x_label: str, y_label: str, log: bool) -> None:
    """Titles, a light grid and, where asked, a logarithmic axis."""
    axis.set_title(title)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.grid(alpha=0.25)
    if log:
        axis.set_yscale("log")
