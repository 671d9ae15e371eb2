"""Regression: mean squared error, direction, and what predictors without a network reach."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from app.modules.base import Batch, NetworkModule, OptimizerFactory, ScheduleFactory
from app.modules.schedules import WarmupCosine
from app.protocols import Floored, Penalised


class Regression(NetworkModule):
    """Trains a network whose outputs are vectors like the targets.

    Logs ``loss`` (mean squared error) and ``cosine`` (mean cosine between prediction and target) for
    ``train`` (means over the epoch), ``val`` and ``test``, and ``train/batch_loss`` and ``train/lr`` at
    logging steps.

    A network with a penalty (:class:`app.protocols.Penalised`) also gets ``train/penalty``; it is added to
    the training loss alone. A datamodule that knows its floors (:class:`app.protocols.Floored`) also gets,
    for ``val`` and ``test``, ``over_trivial``: the mean squared error over that of the first of them, which
    below 1 beats it; and, where the least of them is above zero, ``over_floor``: the same over the least.

    Args:
        network: Maps a batch of inputs to predictions of the targets' shape.
        loss: Called with predictions and targets for training; mean squared error by default.
        optimizer: See :class:`app.modules.base.NetworkModule`.
        schedule: See :class:`app.modules.base.NetworkModule`.
        compile_network: See :class:`app.modules.base.NetworkModule`.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module | None = None,
        optimizer: OptimizerFactory = torch.optim.AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        compile_network: bool = False,
    ) -> None:
        super().__init__(network, optimizer, schedule, compile_network)
        self.loss = nn.MSELoss() if loss is None else loss

        def metrics(stage: str) -> MetricCollection:
            # No NaN policy: it would wait for the device at every step.
            means = {name: MeanMetric(nan_strategy="disable") for name in ("loss", "cosine")}
            return MetricCollection(dict(means), prefix=f"{stage}/", compute_groups=False)

        self.train_metrics, self.val_metrics, self.test_metrics = map(metrics, ("train", "val", "test"))
        self.metric_names = frozenset(
            {
                "train/batch_loss",
                "train/lr",
                *({"train/penalty"} if isinstance(network, Penalised) else ()),
                *(f"{stage}/{name}" for stage in ("val", "test") for name in ("over_trivial", "over_floor")),
                *self.train_metrics,
                *self.val_metrics,
                *self.test_metrics,
            }
        )
        self._floors: Mapping[str, float] = {}

    def setup(self, stage: str) -> None:
        """Asks the datamodule for its floors."""
        data = getattr(self.trainer, "datamodule", None)
        self._floors = data.floors() if isinstance(data, Floored) else {}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the training loss, the network's penalty included."""
        x, y = batch
        prediction, penalty = self.predict_with_penalty(x)
        loss: Tensor = self.loss(prediction.float(), y)
        update(self.train_metrics, prediction.detach(), y)
        for name, metric in self.train_metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True)
        self.log("train/batch_loss", loss.detach(), on_step=True, on_epoch=False, prog_bar=True)
        self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"], on_step=True, on_epoch=False)
        if penalty is None:
            return loss
        self.log("train/penalty", penalty.detach(), on_step=True, on_epoch=False)
        return loss + penalty

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Updates the validation metrics."""
        self._evaluate(batch, self.val_metrics)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Updates the test metrics."""
        self._evaluate(batch, self.test_metrics)

    def on_validation_epoch_end(self) -> None:
        """Places the error beside the floors."""
        self._compare(self.val_metrics, "val")

    def on_test_epoch_end(self) -> None:
        """Places the error beside the floors."""
        self._compare(self.test_metrics, "test")

    def _evaluate(self, batch: Batch, metrics: MetricCollection) -> None:
        x, y = batch
        update(metrics, self(x), y)
        for name, metric in metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True, prog_bar=name == "val/loss")

    def _compare(self, metrics: MetricCollection, stage: str) -> None:
        if self._floors:
            # Computed over all ranks, so there is nothing left to synchronise.
            error = metrics["loss"].compute()
            values = list(self._floors.values())
            if values[0] > 0:
                self.log(f"{stage}/over_trivial", error / values[0])
            if min(values) > 0:
                self.log(f"{stage}/over_floor", error / min(values))


def update(metrics: MetricCollection, prediction: Tensor, target: Tensor) -> None:
    """Adds a batch: one mean squared error and one mean cosine a sample."""
    prediction, target = prediction.float(), target.float()
    metrics["loss"].update((prediction - target).square().flatten(1).mean(1))
    cosine = nn.functional.cosine_similarity(prediction, target, dim=-1)
    metrics["cosine"].update(cosine.flatten(1).mean(1) if cosine.dim() > 1 else cosine)
