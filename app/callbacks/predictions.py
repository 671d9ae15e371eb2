"""Predictions of all ranks in one file."""

import csv
import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from app.callbacks.records import run_folder


class PredictionsWriter(Callback):
    """Writes ``predictions.csv`` into the run's folder: every sample once, in the order of the data set.

    Rank r of W predicts the samples r, r + W, r + 2W … without padding, so the parts are interleaved again;
    they may differ in length by one. Lightning's own writer class is not used: it keeps a second copy of all
    predictions on the device and warns about data loaders that are not of its making.

    Logged:
        - nothing; the file has the columns ``index, y_0 … y_k``, a prediction of more dimensions flattened.
          Several data loaders have a file each, ``predictions_0.csv``, ``predictions_1.csv`` …

    Raises:
        TypeError: if ``predict_step`` returns anything but a tensor with the samples in its first dimension.

    Example:
        >>> trainer = Trainer(callbacks=[PredictionsWriter()])  # doctest: +SKIP
        >>> trainer.predict(module, datamodule, return_predictions=False)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._folder: str | None = None
        self._parts: dict[int, list[Tensor]] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Resolves the folder on every rank."""
        self._folder = run_folder(trainer)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts from nothing."""
        self._parts = {}

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keeps a batch on the CPU."""
        if not isinstance(outputs, Tensor) or outputs.dim() == 0:
            raise TypeError(f"predict_step must return a tensor [batch, ...], got {type(outputs).__name__}")
        rows = outputs.detach().reshape(len(outputs), -1).cpu()
        self._parts.setdefault(dataloader_idx, []).append(rows)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gathers the parts, a collective of all ranks, and writes on rank 0."""
        own = {loader: torch.cat(parts) for loader, parts in self._parts.items()}
        self._parts = {}
        parts: list[Any] = [own]
        if trainer.world_size > 1:
            parts = [None] * trainer.world_size
            torch.distributed.gather_object(own, parts if trainer.is_global_zero else None)
        if self._folder is None or not trainer.is_global_zero:
            return
        loaders = sorted({loader for part in parts for loader in part})
        for loader in loaders:
            name = "predictions.csv" if len(loaders) == 1 else f"predictions_{loader}.csv"
            _write(Path(self._folder) / name, interleave([p[loader] for p in parts if loader in p]))


def interleave(parts: list[Tensor]) -> Tensor:
    """Rows ``parts[r][i]`` at place ``i·W + r``: the inverse of dealing rows to W ranks in turn."""
    whole = parts[0].new_empty((sum(len(part) for part in parts), *parts[0].shape[1:]))
    for rank, part in enumerate(parts):
        whole[rank :: len(parts)] = part
    return whole


def _write(path: Path, rows: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    digits = ".17g" if rows.dtype == torch.float64 else ".9g"  # enough to read the same number back
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["index", *(f"y_{column}" for column in range(rows.shape[1]))])
        for index, row in enumerate(rows.tolist()):
            writer.writerow([index, *(format(value, digits) for value in row)])
    os.replace(draft, path)
