"""What a fit has recorded so far of a few metrics, for pictures of all layers against time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
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

    def state_dict(self) -> dict[str, Any]:
        """What was kept, one matrix a metric, for a checkpoint."""
        state: dict[str, Any] = {}
        for metric, columns in self._columns.items():
            layers = list(dict.fromkeys(layer for column in columns.values() for layer in column))
            rows = [[column.get(layer, math.nan) for layer in layers] for column in columns.values()]
            values = torch.tensor(rows, dtype=torch.float64)
            state[metric] = {"layers": layers, "steps": list(columns), "values": values}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores it."""
        self._columns = {
            metric: {
                step: dict(zip(kept["layers"], row, strict=True))
                for step, row in zip(kept["steps"], kept["values"].tolist(), strict=True)
            }
            for metric, kept in state.items()
        }

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
