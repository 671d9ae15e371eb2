"""The open table of a run's diagnostics: one Arrow IPC stream that survives a killed process.

The file is the schema's message followed by one record batch for each append, and an append is one write. A
process that is killed leaves every earlier batch readable, by pyarrow and by any other reader of the format;
what it left half written is passed over, and cut off before the next append. There is no footer that could
be missing, which is why this is a stream and neither an Arrow file nor Parquet.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("epoch", pa.int64()),
        ("stage", pa.string()),
        ("metric", pa.string()),
        ("layer", pa.string()),
        ("value", pa.float64()),
        ("values", pa.list_(pa.float32())),
        ("shape", pa.list_(pa.int32())),
    ]
)
FOLDER = "diagnostics"
FILE = "records.arrow"


class Row(NamedTuple):
    """One record. A scalar has a ``value``; a vector or a matrix has ``values``, NaN and inf included."""

    step: int
    epoch: int
    stage: str
    metric: str
    layer: str
    value: float | None
    values: NDArray[np.float32] | None = None


def read_diagnostics(folder: str | os.PathLike[str]) -> "pd.DataFrame":
    """Reads the diagnostics of one run as a table, one row a record.

    The columns are ``step`` and ``epoch``; ``stage`` (fit, validate or test); ``metric`` and ``layer``, which
    is empty for what belongs to no layer; ``value``, a float, NaN too where the record is no scalar;
    ``values``, an array of the record's own shape where it is a vector or a matrix; and ``shape``, a tuple,
    empty for a scalar. A batch that a killed process left half written is left out.

    Args:
        folder: the run's folder, or the ``diagnostics`` folder in it.

    Raises:
        FileNotFoundError: if the run recorded no diagnostics.

    Example:
        >>> table = read_diagnostics("runs/z_plane_digits/version_0")  # doctest: +SKIP
        >>> norms = table[table.metric == "diagnostics/spectral_norm"]  # doctest: +SKIP
        >>> norms.pivot(index="step", columns="layer", values="value").plot()  # doctest: +SKIP
    """
    root = Path(folder)
    path = root / FILE if (root / FILE).is_file() else root / FOLDER / FILE
    if not path.is_file():
        raise FileNotFoundError(f"no diagnostics were recorded in {root}: {path} does not exist")
    table = pa.Table.from_batches(list(_whole_batches(path)), SCHEMA)
    frame = table.drop_columns(["values", "shape"]).to_pandas()
    shapes = [tuple(shape) for shape in table["shape"].to_pylist()]
    # Rows of one column share a buffer; each is cut out of it without a copy.
    flat = [None if v.as_py() is None else v.values.to_numpy() for v in table["values"]]
    arrays = [None if v is None else v.reshape(shape) for v, shape in zip(flat, shapes, strict=True)]
    frame["values"] = _objects(arrays)
    frame["shape"] = _objects(shapes)
    return frame


class Table:
    """Appends to the file at ``path`` and makes it where it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end: int | None = None  # where our last append ended: all before it is known to be whole

    def append(self, rows: Sequence[Row]) -> None:
        """Appends one batch in one write."""
        size = self._path.stat().st_size if self._path.exists() else 0
        whole = size if size == self._end else _whole_length(self._path)
        data = _batch(rows).serialize().to_pybytes()
        if whole == 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            data = SCHEMA.serialize().to_pybytes() + data
        if whole < size:
            os.truncate(self._path, whole)
        with self._path.open("ab", buffering=0) as file:
            file.write(data)
        self._end = whole + len(data)

    def rewind(self, step: int) -> None:
        """Drops what an earlier fit recorded after the step from which training now goes on.

        Gradients recorded at that very step are dropped too: they belong to the update that follows it.
        """
        if not self._path.is_file():
            return
        draft = self._path.with_suffix(".tmp")
        with draft.open("wb") as file:
            file.write(SCHEMA.serialize())
            for batch in _whole_batches(self._path):
                file.write(batch.filter(_stays(batch, step)).serialize())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._path)
        self._end = None


def _stays(batch: pa.RecordBatch, step: int) -> pa.Array:
    evaluation = pc.not_equal(batch["stage"], "fit")
    if step == 0:
        return evaluation
    gradients = pc.starts_with(batch["metric"], "gradients/")
    before = pc.less(batch["step"], step)
    reached = pc.and_(pc.equal(batch["step"], step), pc.invert(gradients))
    return pc.or_(evaluation, pc.or_(before, reached))


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    names = ("step", "epoch", "stage", "metric", "layer", "value")
    columns = [pa.array([getattr(row, name) for row in rows], SCHEMA.field(name).type) for name in names]
    arrays = [row.values for row in rows]
    flat = [np.zeros(0, np.float32) if a is None else np.asarray(a, np.float32).ravel() for a in arrays]
    ends = np.cumsum([0, *map(len, flat)])
    offsets = pa.array(ends, pa.int32(), mask=np.array([*(a is None for a in arrays), False]))
    values = pa.ListArray.from_arrays(offsets, pa.array(np.concatenate([*flat, np.zeros(0, np.float32)])))
    shapes = pa.array([[] if a is None else list(a.shape) for a in arrays], pa.list_(pa.int32()))
    return pa.RecordBatch.from_arrays([*columns, values, shapes], schema=SCHEMA)


def _messages(path: Path) -> Iterator[tuple[int, pa.Message]]:
    """Whole messages with the place where each ends."""
    with pa.OSFile(str(path)) as file:
        size = file.size()
        while file.tell() < size:
            try:
                message = pa.ipc.read_message(file)
            except (pa.ArrowInvalid, EOFError, OSError):
                return
            yield file.tell(), message


def _whole_length(path: Path) -> int:
    end = 0
    if path.is_file():
        for end, _ in _messages(path):  # noqa: B007  # the last one is what is asked for
            pass
    return end


def _whole_batches(path: Path) -> Iterator[pa.RecordBatch]:
    for _, message in _messages(path):
        if message.type == "record batch":
            yield pa.ipc.read_record_batch(message, SCHEMA)


def _objects(items: Sequence[object]) -> NDArray[np.object_]:
    """An array of the items themselves: NumPy would make one of equal shapes a larger array."""
    column = np.empty(len(items), object)
    for place, item in enumerate(items):
        column[place] = item
    return column
