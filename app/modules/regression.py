"""Regression: mean squared error, direction, and what predictors without a network reach."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric, MetricCollection

from app.modules.base import Batch, NetworkModule, OptimizerFactory, ScheduleFactory
from app.modules.measures import R2, norm_deviation, rollout
from app.modules.schedules import WarmupCosine
from app.protocols import Floored, Penalised, UnitNormed


class Regression(NetworkModule):
    """Trains a network whose outputs are vectors like the targets.

    Logs ``loss`` (mean squared error) and ``cosine`` (mean cosine between prediction and target) for
    ``train`` (means over the epoch), ``val`` and ``test``, ``r2`` (:class:`app.modules.measures.R2`) for
    ``val`` and ``test``, and ``train/batch_loss`` and ``train/lr`` at logging steps.

    A network with a penalty (:class:`app.protocols.Penalised`) also gets ``train/penalty``; it is added to
    the training loss alone. A datamodule that knows its floors (:class:`app.protocols.Floored`) also gets,
    for ``val`` and ``test``, ``over_trivial``: the mean squared error over that of the first of them, which
    below 1 beats it; and, where the least of them is above zero, ``over_floor``: the same over the least.

    On sequences of unit vectors (:class:`app.protocols.UnitNormed`), ``val`` and ``test`` also get norm
    deviations, mean over positions of |mean ‖prediction‖ − 1|, once a pass: ``norm_deviation`` on vectors
    drawn anew at every position, as published; ``norm_deviation_echo`` on one vector and a little noise; and
    ``test`` alone, since it needs a pass for every step, ``norm_deviation_rollout`` on fresh sequences of
    the task, continued by the network's own predictions over a sliding window.

    Args:
        network: Maps a batch of inputs to predictions of the targets' shape.
        loss: Called with predictions and targets for training; mean squared error by default.
        optimizer: See :class:`app.modules.base.NetworkModule`.
        schedule: See :class:`app.modules.base.NetworkModule`.
        compile_network: See :class:`app.modules.base.NetworkModule`.
        rollout_steps: Predictions of a rollout, ≥ 1.

    Raises:
        ValueError: ``rollout_steps`` is below 1.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module | None = None,
        optimizer: OptimizerFactory = torch.optim.AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        compile_network: bool = False,
        rollout_steps: int = 1000,
    ) -> None:
        super().__init__(network, optimizer, schedule, compile_network)
        if rollout_steps < 1:
            raise ValueError(f"rollout_steps must be at least 1, got {rollout_steps}")
        self.rollout_steps = rollout_steps
        self.loss = nn.MSELoss() if loss is None else loss

        # No NaN policy: it would wait for the device at every step.
        def means(*names: str) -> dict[str, Metric | MetricCollection]:
            return {name: MeanMetric(nan_strategy="disable") for name in names}

        def collected(stage: str, metrics: dict[str, Metric | MetricCollection]) -> MetricCollection:
            return MetricCollection(metrics, prefix=f"{stage}/", compute_groups=False)

        self.train_metrics = collected("train", means("loss", "cosine"))
        self.val_metrics = collected("val", {**means("loss", "cosine"), "r2": R2()})
        self.test_metrics = collected("test", {**means("loss", "cosine"), "r2": R2()})
        published = ("norm_deviation", "norm_deviation_echo")
        self.val_norms = collected("val", means(*published))
        self.test_norms = collected("test", means(*published, "norm_deviation_rollout"))
        self.metric_names = frozenset(
            {
                "train/batch_loss",
                "train/lr",
                *({"train/penalty"} if isinstance(network, Penalised) else ()),
                *(f"{stage}/{name}" for stage in ("val", "test") for name in ("over_trivial", "over_floor")),
                *self.train_metrics,
                *self.val_metrics,
                *self.test_metrics,
                *self.val_norms,
                *self.test_norms,
            }
        )
        self._floors: Mapping[str, float] = {}
        self._norm_probes: Mapping[str, Tensor] | None = None

    def setup(self, stage: str) -> None:
        """Asks the datamodule for its floors, and for inputs to measure norms on."""
        data = getattr(self.trainer, "datamodule", None)
        self._floors = data.floors() if isinstance(data, Floored) else {}
        self._norm_probes = data.norm_probes() if isinstance(data, UnitNormed) else None

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
        if batch_idx == 0 and not self.trainer.sanity_checking:
            self._measure_norms(batch[0], self.val_norms)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Updates the test metrics."""
        self._evaluate(batch, self.test_metrics)
        if batch_idx == 0:
            self._measure_norms(batch[0], self.test_norms)

    def on_validation_epoch_end(self) -> None:
        """Places the error beside the floors."""
        self._compare(self.val_metrics, "val")

    def on_test_epoch_end(self) -> None:
        """Places the error beside the floors."""
        self._compare(self.test_metrics, "test")

    def _evaluate(self, batch: Batch, metrics: MetricCollection) -> None:
        x, y = batch
        prediction = self(x)
        update(metrics, prediction, y)
        metrics["r2"].update(prediction, y)
        for name, metric in metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True, prog_bar=name == "val/loss")

    def _measure_norms(self, x: Tensor, metrics: MetricCollection) -> None:
        if self._norm_probes is None:
            return
        probes = {name: probe.to(x) for name, probe in self._norm_probes.items()}
        metrics["norm_deviation"].update(norm_deviation(self(probes["fresh"])))
        metrics["norm_deviation_echo"].update(norm_deviation(self(probes["echo"])))
        if "norm_deviation_rollout" in metrics:
            made = rollout(self, probes["start"], self.rollout_steps)
            metrics["norm_deviation_rollout"].update(norm_deviation(made))
        for name, metric in metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True)

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
