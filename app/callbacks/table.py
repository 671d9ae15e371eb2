"""The open table of a run's diagnostics: one long CSV file that survives a killed process.

A row is one number; the columns are ``step, epoch, stage, metric, layer, statistic, value``. Text was
chosen over Parquet or Arrow because a process that is killed leaves every earlier row readable, because
nothing beyond the standard library reads it, today or in ten years, and because a run has only some ten
thousand rows.
"""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("step", "epoch", "stage", "metric", "layer", "statistic", "value")
Row = tuple[int, int, str, str, str, str, float]

FOLDER = "diagnostics"
FILE = "scalars.csv"


def read_diagnostics(folder: str | os.PathLike[str]) -> dict[str, NDArray[np.generic]]:
    """Reads the diagnostics of one run as a table: column name → array, one entry a row.

    ``step`` and ``epoch`` are int64, ``value`` is float64 (NaN and inf included), the rest are strings.
    ``layer`` is empty for what belongs to no layer. ``statistic`` is empty for a scalar; a vector has the
    rows ``min``, ``p25``, ``p50``, ``p75``, ``max`` of its finite elements and ``nonfinite``, the count of
    the others. A last row that a killed process left half written is left out.

    Args:
        folder: the run's folder, or the ``diagnostics`` folder in it.

    Raises:
        FileNotFoundError: if the run recorded no diagnostics.

    Example:
        >>> table = read_diagnostics("runs/z_plane_digits/version_0")  # doctest: +SKIP
        >>> import pandas; pandas.DataFrame(table)  # doctest: +SKIP
    """
    root = Path(folder)
    path = root / FILE if (root / FILE).is_file() else root / FOLDER / FILE
    if not path.is_file():
        raise FileNotFoundError(f"no diagnostics were recorded in {root}: {path} does not exist")
    rows = _whole_rows(path)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    kinds: tuple[type, ...] = (np.int64, np.int64, np.str_, np.str_, np.str_, np.str_, np.float64)
    return {
        name: np.array(column, dtype=kind) for name, column, kind in zip(COLUMNS, columns, kinds, strict=True)
    }


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Appends rows in one write, creating the file with its header."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if path.exists():
        _cut_torn_row(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer.writerow(COLUMNS)
    writer.writerows((*row[:-1], f"{row[-1]:.9g}") for row in rows)
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(buffer.getvalue())


def rewind_rows(path: Path, step: int) -> None:
    """Drops what an earlier fit recorded after the step from which training now goes on.

    Gradients recorded at that very step are dropped too: they belong to the update that follows it.
    """
    if not path.is_file():
        return

    def stays(row: list[str]) -> bool:
        at, stage, metric = int(row[0]), row[2], row[3]
        if stage != "fit":
            return True
        return step > 0 and (at < step or (at == step and not metric.startswith("gradients/")))

    kept = [row for row in _whole_rows(path) if stays(row)]
    draft = path.with_suffix(".tmp")
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(kept)
    os.replace(draft, path)


def _cut_torn_row(path: Path) -> None:
    """Takes off what a killed process left half written: the next row must not grow onto it."""
    with path.open("rb+") as file:
        end = file.seek(0, io.SEEK_END)
        file.seek(max(0, end - 1))
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def _whole_rows(path: Path) -> list[list[str]]:
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.reader(io.StringIO(whole)) if len(row) == len(COLUMNS)][1:]
