"""What callbacks have to say, as plain records, and the one place that they all go through.

A producer (diagnostics, gradients) hands over records; :class:`Records` writes them to the loggers and to
the run's table, and passes them on to whoever listens (health rules). Scalars go to every logger but the CSV
one: diagnostics never become columns of ``metrics.csv``, where hundreds of layers would drown the metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from numpy.typing import NDArray

from app.callbacks.figures import rasterise
from app.callbacks.table import FILE, FOLDER, Row, Table


@dataclass(frozen=True)
class Scalar:
    """One number. ``shown``: by the loggers; ``tabled``: in the table."""

    metric: str
    value: float
    layer: str = ""
    shown: bool = True
    tabled: bool = True


@dataclass(frozen=True)
class Vector:
    """One-dimensional float array: a histogram in TensorBoard, all of it in the table."""

    metric: str
    values: NDArray[np.float32]
    layer: str = ""
    shown: bool = True


@dataclass(frozen=True)
class Matrix:
    """Two-dimensional float array, for the table alone; a picture of it is a record of its own."""

    metric: str
    values: NDArray[np.float32]
    layer: str = ""


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure, drawn only where somebody will see it."""

    tag: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Text:
    """Markdown for TensorBoard's text panel."""

    tag: str
    text: str


Record = Scalar | Vector | Matrix | Picture | Text
Listener = Callable[[Trainer, int, Sequence[Record]], None]


def tag(metric: str, layer: str) -> str:
    """The TensorBoard tag of a metric at a layer: ``metric/layer``, or the metric alone."""
    return f"{metric}/{layer}" if layer else metric


class Records:
    """Sink and bus. Every rank may call it in the same way; rank 0 alone writes, and nothing is collective.

    Args:
        folder: the run's folder, the same on all ranks; ``None`` keeps no table.
    """

    def __init__(self, folder: str | None) -> None:
        self._table = Table(Path(folder) / FOLDER / FILE) if folder is not None else None
        self._listeners: list[Listener] = []
        self._rewound = False

    def subscribe(self, listener: Listener) -> None:
        """Calls ``listener(trainer, step, records)`` after each write, on every rank."""
        self._listeners.append(listener)

    def rewind(self, trainer: Trainer) -> None:
        """Forgets, once a fit, what an earlier fit in this folder recorded after the present step."""
        if not self._rewound and self._table is not None and trainer.is_global_zero:
            self._table.rewind(trainer.global_step)
        self._rewound = True

    def write(self, trainer: Trainer, records: Sequence[Record], step: int | None = None) -> None:
        """Writes records at ``step`` (default: the trainer's global step)."""
        at = trainer.global_step if step is None else step
        if trainer.is_global_zero:
            self._write_board(trainer, records, at)
            self._write_others(trainer, records, at)
            self._write_table(trainer, records, at)
        for listener in self._listeners:
            listener(trainer, at, records)

    @staticmethod
    def boards(trainer: Trainer) -> list[Any]:
        """The TensorBoard writers that diagnostics go to.

        A test or validation that follows a fit in the same trainer has none: its numbers, of other weights
        or at a step already drawn, would put a second value on the curves of the fit. The table has them.
        """
        if trainer.global_step > 0 and _stage(trainer) != "fit":
            return []
        return [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]

    def _write_board(self, trainer: Trainer, records: Sequence[Record], step: int) -> None:
        boards = self.boards(trainer)
        if not boards:
            return
        for record in records:
            match record:
                case Scalar(metric, value, layer, True):
                    for board in boards:
                        board.add_scalar(tag(metric, layer), value, step)
                case Vector(metric, values, layer, True):
                    finite = values[np.isfinite(values)]
                    for board in boards:
                        if finite.size:  # TensorBoard raises on an empty histogram
                            board.add_histogram(tag(metric, layer), finite, step)
                        if finite.size < values.size:
                            board.add_scalar(
                                tag(f"{metric}_nonfinite", layer), values.size - finite.size, step
                            )
                case Picture(name, draw):
                    image = rasterise(draw())
                    for board in boards:
                        board.add_image(name, image, step, dataformats="HWC")
                case Text(name, text):
                    for board in boards:
                        board.add_text(name, text, step)
                case _:
                    pass  # not shown

    def _write_others(self, trainer: Trainer, records: Sequence[Record], step: int) -> None:
        if trainer.global_step > 0 and _stage(trainer) != "fit":
            return
        others = [x for x in trainer.loggers if not isinstance(x, (TensorBoardLogger, CSVLogger))]
        shown = {tag(r.metric, r.layer): r.value for r in records if isinstance(r, Scalar) and r.shown}
        for logger in others if shown else []:
            logger.log_metrics(shown, step)

    def _write_table(self, trainer: Trainer, records: Sequence[Record], step: int) -> None:
        if self._table is None:
            return
        where = (step, trainer.current_epoch, _stage(trainer))
        rows: list[Row] = []
        for record in records:
            if isinstance(record, Scalar) and record.tabled:
                rows.append(Row(*where, record.metric, record.layer, record.value))
            elif isinstance(record, (Vector, Matrix)):
                rows.append(Row(*where, record.metric, record.layer, None, record.values))
        if rows:
            self._table.append(rows)


class Recorder(Callback):
    """A callback that hands over records. All recorders of a trainer share one :class:`Records`."""

    def __init__(self) -> None:
        self.records = Records(None)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Resolves the run's folder, on every rank, since Lightning broadcasts it."""
        folder = run_folder(trainer)
        first = next((c for c in trainer.callbacks if isinstance(c, Recorder)), self)  # type: ignore[attr-defined]
        self.records = Records(folder) if first is self else first.records

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The first hook of a fit that knows the resumed step."""
        self.records.rewind(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The same, where there is no sanity check."""
        self.records.rewind(trainer)


def run_folder(trainer: Trainer) -> str | None:
    """The folder of this run. Collective: to be called on all ranks, in ``setup``.

    ``None`` under ``fast_dev_run``, which leaves nothing behind.
    """
    folder = trainer.log_dir
    return None if trainer.fast_dev_run or folder is None else str(folder)  # type: ignore[attr-defined]


def logging_interval(trainer: Trainer) -> int:
    """Steps between two logging steps; 0 for none."""
    return int(trainer.log_every_n_steps)  # type: ignore[attr-defined]


def _stage(trainer: Trainer) -> str:
    return str(trainer.state.fn.value) if trainer.state.fn is not None else ""
