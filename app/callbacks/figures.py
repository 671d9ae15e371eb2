"""Pictures of a whole network, by Matplotlib's object interface: no pyplot, no global state, no screen."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

INSIDE, OUTSIDE = "#0072B2", "#D55E00"  # blue and vermilion: told apart by every common colour vision
COLOURS = (
    INSIDE,
    OUTSIDE,
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)  # of Okabe and Ito, likewise


def rasterise(figure: Figure) -> NDArray[np.uint8]:
    """Draws a figure into an ``[H, W, 3]`` array."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3]


def _panels(title: str, count: int, height: float) -> tuple[Figure, list[Any]]:
    """A figure of two columns, and its first ``count`` axes."""
    columns, rows = min(2, max(1, count)), max(1, (count + 1) // 2)
    figure = Figure(figsize=(3.2 * columns, height * rows + 0.4), dpi=90, layout="constrained")
    figure.suptitle(title)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def unit_discs(title: str, points: Mapping[str, NDArray[np.float32]]) -> Figure:
    """One panel a layer: points of the plane with the unit circle, those on or beyond it in another colour.

    Args:
        title: what the points are.
        points: layer → ``[n, 2]`` real and imaginary parts. Points that are not finite are counted.
    """
    figure, panels = _panels(title, len(points), 3.3)
    angle = np.linspace(0, 2 * np.pi, 257)
    for axes, (layer, cloud) in zip(panels, points.items(), strict=True):
        finite = cloud[np.isfinite(cloud).all(axis=1)]
        radius = np.hypot(*finite.T.astype(np.float64)) if finite.size else np.zeros(0)
        bounded = radius > 1 - 1e-3  # bounding puts a phasor onto the circle, give or take its rounding
        axes.plot(np.cos(angle), np.sin(angle), color="0.35", linewidth=1)
        for mask, colour, marker in ((~bounded, INSIDE, "o"), (bounded, OUTSIDE, "^")):
            axes.scatter(*finite[mask].T, s=11, c=colour, marker=marker, alpha=0.45, linewidths=0, zorder=3)
        # The 99th percentile: one stray phasor must not shrink the disc to a dot.
        limit = max(1.15, 1.05 * float(np.quantile(radius, 0.99))) if radius.size else 1.15
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        axes.set_title(layer, fontsize=9)
        lost = len(cloud) - len(finite)
        share = f"{bounded.mean():.0%} on or beyond the circle" if len(finite) else "nothing finite"
        axes.set_xlabel(share + (f", {lost} not finite" if lost else ""), fontsize=9)
        axes.tick_params(labelsize=7)
    return figure


def lines(title: str, curves: Mapping[str, NDArray[np.float32]]) -> Figure:
    """One panel a layer, one line a row against the column's number; what is not finite is a gap.

    Args:
        title: what is drawn.
        curves: layer → ``[lines, points]``.
    """
    figure, panels = _panels(title, len(curves), 2.6)
    for axes, (layer, rows) in zip(panels, curves.items(), strict=True):
        shown = np.where(np.isfinite(rows), rows, np.nan).astype(np.float64)
        for place, row in enumerate(shown):
            axes.plot(
                np.arange(1, len(row) + 1), row, color=COLOURS[place % len(COLOURS)],
                linestyle=("-", "--", ":")[place // len(COLOURS) % 3], linewidth=1.4,
            )  # fmt: skip
        axes.set_title(layer or "network", fontsize=9)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=7)
        lost = int(rows.size - np.isfinite(rows).sum())
        axes.set_xlabel("position" + (f", {lost} not finite" if lost else ""), fontsize=9)
    return figure


def heat_map(
    title: str, layers: Sequence[str], steps: Sequence[int], values: NDArray[np.float32], log: bool = False
) -> Figure:
    """Depth against time, one colour a number; what is not finite stays grey.

    Args:
        title: what is drawn.
        layers: names along the vertical axis, the first layer at the top.
        steps: optimizer steps along the horizontal axis.
        values: ``[layers, steps]``.
        log: a logarithmic colour scale, for what varies over orders of magnitude.
    """
    figure = Figure(figsize=(6.4, 4.2), dpi=90, layout="constrained")
    axes = figure.subplots()
    shown = np.ma.masked_where(~np.isfinite(values) | ((values <= 0) & log), values.astype(np.float64))
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (1.0, 1.0)
    norm = LogNorm(low, max(high, low * 1.001)) if log else Normalize(low, high)
    axes.set_facecolor("0.75")
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="viridis", norm=norm)
    for axis, labels in ((axes.yaxis, layers), (axes.xaxis, steps)):
        places = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), 8)).round().astype(int))
        axis.set_ticks(places, [str(labels[place]) for place in places], fontsize=8)
    axes.set(title=title, xlabel="step")
    figure.colorbar(image, ax=axes).ax.minorticks_off()
    return figure
