"""What a fit prints when it ends: a table of results and where to look."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor


def show_resumed(folder: Path, step: int, changed: Mapping[str, tuple[object, object]]) -> None:
    """Prints where a run goes on, and which settings are no longer what they were."""

    def shown(value: object) -> str:
        text = str(value)
        return text if len(text) <= 40 else "…"

    now = "; ".join(f"{name} {shown(old)} → {shown(new)}" for name, (old, new) in changed.items())
    print(f"{folder} goes on at step {step}" + (f", from here on with {now}" if now else ""), flush=True)


def show(metrics: Mapping[str, Tensor], folder: Path | None, console: Console | None = None) -> None:
    """Prints one row a metric with its train, validation and test value, then the run folder.

    Args:
        metrics: Values by name, ``<stage>/<metric>``; others are left out.
        folder: The run's folder, if it has one.
        console: Where to print.
    """
    console = console or Console()
    stages = {"train": "train (last)", "val": "validation (last)", "test": "test (best)"}
    rows: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        stage, _, metric = name.partition("/")
        if stage in stages and metric not in ("batch_loss", "lr"):
            rows.setdefault(metric, {})[stage] = float(value)
    table = Table(title="Results", title_justify="left")
    table.add_column("metric")
    for heading in stages.values():
        table.add_column(heading, justify="right")
    for metric, values in sorted(rows.items()):
        table.add_row(metric, *(f"{values[stage]:.4g}" if stage in values else "" for stage in stages))
    console.print(table)
    if folder is not None:
        console.print(f"run folder  {folder}", soft_wrap=True)
        console.print(f"dashboard   python -m app dashboard {folder.parent.parent}", soft_wrap=True)
