"""What a fit has recorded so far of a few metrics, for pictures of all layers against time."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from app.callbacks.figures import heat_map
from app.callbacks.records import Picture, Record, Scalar


class History:
    """Keeps one column a step of the metrics that it is asked to watch.

    Args:
        metrics: full name, such as ``diagnostics/bounded_fraction``, → name of its picture.
        log: whether their pictures have a logarithmic colour scale.
    """

    def __init__(self, metrics: Mapping[str, str], log: bool = False) -> None:
        self._metrics = dict(metrics)
        self._log = log
        self._columns: dict[str, dict[int, dict[str, float]]] = {}

    def clear(self) -> None:
        """Forgets everything."""
        self._columns.clear()

    def add(self, step: int, records: Sequence[Record]) -> None:
        """Takes the per-layer scalars of the watched metrics."""
        for record in records:
            if isinstance(record, Scalar) and record.tabled and record.metric in self._metrics:
                self._columns.setdefault(record.metric, {}).setdefault(step, {})[record.layer] = record.value

    def pictures(self) -> list[Picture]:
        """One heat map for each metric that at least two layers have."""
        pictures = []
        for metric, name in self._metrics.items():
            columns = self._columns.get(metric, {})
            layers = list(dict.fromkeys(layer for column in columns.values() for layer in column))
            if len(layers) < 2:
                continue
            values = np.array(
                [[c.get(layer, np.nan) for c in columns.values()] for layer in layers], np.float32
            )
            pictures.append(self._picture(name, layers, list(columns), values))
        return pictures

    def _picture(
        self, name: str, layers: list[str], steps: list[int], values: NDArray[np.float32]
    ) -> Picture:
        def draw() -> Figure:
            return heat_map(name.replace("_", " "), layers, steps, values, self._log)

        return Picture(f"figures/{name}", draw)
