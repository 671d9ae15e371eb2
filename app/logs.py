"""A run's logs: a CSV file that a resumed run goes on with, and going back to where a checkpoint was."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import _ExperimentWriter as FabricWriter
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch import loggers
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

METRICS = "metrics.csv"
EVENTS = "events.out.tfevents.*"


class Writer(ExperimentWriter):
    """Goes on with the rows that are already in the file; Lightning's deletes them."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(log_dir)
        self.metrics_keys = columns(Path(self.metrics_file_path))

    def _check_log_dir_exists(self) -> None:
        """Leaves the folder as it is."""

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        path = Path(self.metrics_file_path)
        replace_rows(path, fieldnames, rows_of(path))


class CSVLogger(loggers.CSVLogger):
    """Lightning's CSV logger, except that an existing ``metrics.csv`` is continued and not deleted.

    Args:
        save_dir: As Lightning's, like all others.
        name: Folder below it.
        version: Folder below that.
        prefix: Put before every name.
        flush_logs_every_n_steps: Rows from one writing to the next.
    """

    @property
    @rank_zero_experiment
    def experiment(self) -> FabricWriter:
        """The writer of the file."""
        if self._experiment is None:
            self._experiment = Writer(log_dir=self.log_dir)
        return self._experiment


def columns(path: Path) -> list[str]:
    """Returns the names in the first row, none if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file), [])


def rows_of(path: Path) -> list[dict[str, str]]:
    """Returns the rows that were written to the end, each under the names of the first."""
    with path.open(newline="", encoding="utf-8") as file:
        text = file.read()
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(whole.splitlines()))


def replace_rows(path: Path, names: list[str], rows: list[dict[str, str]]) -> None:
    """Writes the file anew, beside its place first."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(rows)
    os.replace(draft, path)


def positions(folder: Path) -> dict[str, int]:
    """Returns how far each log of a run has come: rows of ``metrics.csv``, bytes of TensorBoard's files.

    Rows are counted, because a new column rewrites all of them.
    """
    found = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob(EVENTS))}
    metrics = folder / METRICS
    if metrics.is_file():
        found[METRICS] = len(rows_of(metrics))
    return found


def rewind(folder: Path, reached: Mapping[str, Any]) -> None:
    """Takes off everything that was logged after ``positions`` gave ``reached``.

    This is exact, where a purge by step is not: values of one step are logged on both sides of a checkpoint.
    """
    for path in sorted(folder.rglob(EVENTS)):
        size = reached.get(str(path.relative_to(folder)))
        if size is None:
            path.unlink()
        else:
            os.truncate(path, min(int(size), path.stat().st_size))
    metrics = folder / METRICS
    if not metrics.is_file():
        return
    count = reached.get(METRICS)
    if count is None:
        metrics.unlink()
    else:
        replace_rows(metrics, columns(metrics), rows_of(metrics)[: int(count)])
