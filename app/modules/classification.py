"""Classification: accuracy, calibration, and certified accuracy where there is a Lipschitz bound."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchmetrics import Accuracy, CalibrationError, MeanMetric, Metric, MetricCollection

from app.modules.base import Batch, NetworkModule, OptimizerFactory, ScheduleFactory
from app.modules.schedules import WarmupCosine
from app.protocols import Certified, Scaled


def certified_name(radius: float) -> str:
    """Returns the metric's name for a radius: 36/255 is ``certified_acc_0_141`` (names hold no dots)."""
    return f"certified_acc_{radius:.3g}".replace(".", "_")


class Classification(NetworkModule):
    r"""Trains a network whose outputs are logits, one a class.

    Logs ``train/loss`` and ``train/acc`` (means over the epoch), ``train/batch_loss`` and ``train/lr``
    (at logging steps), and for ``val`` and ``test`` ``loss`` (always the cross-entropy), ``acc`` and
    ``ece`` (expected calibration error over 15 bins).

    A network that bounds its own Lipschitz constant L (:class:`app.protocols.Certified`) also gets
    ``lipschitz`` and ``certified_acc_<r>``: the share of samples that are classified correctly and
    keep their class under every perturbation of ℓ₂ norm up to r of the images scaled to [0, 1],

    .. math:: z_y - \max_{j \ne y} z_j > \sqrt 2\, L\, s\, r,

    where s is the factor by which the datamodule's normalisation stretches distances.

    Args:
        network: Maps a batch of inputs to logits ``[B, classes]`` and takes ``num_outputs`` classes.
        num_classes: Number of classes; the command line takes it from the data.
        loss: Called with logits and labels for training.
        certified_radii: Radii r ≥ 0 at which certified accuracy is given.
        optimizer: See :class:`app.modules.base.NetworkModule`.
        schedule: See :class:`app.modules.base.NetworkModule`.
        compile_network: See :class:`app.modules.base.NetworkModule`.

    Raises:
        ValueError: Fewer than two classes, or a negative radius.
    """

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        loss: nn.Module | None = None,
        certified_radii: Sequence[float] = (36 / 255, 72 / 255, 108 / 255),
        optimizer: OptimizerFactory = torch.optim.AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        compile_network: bool = False,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2, got {num_classes}")
        if any(radius < 0 for radius in certified_radii):
            raise ValueError(f"certified_radii must not be negative, got {list(certified_radii)}")
        super().__init__(network, optimizer, schedule, compile_network)
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.certified_radii = tuple(certified_radii) if isinstance(network, Certified) else ()

        def metrics(stage: str, calibrated: bool) -> MetricCollection:
            # No validation of arguments and no NaN policy: both would wait for the device at every step.
            # Without a NaN policy MeanMetric drops weights, so it is given one value a sample.
            collection: dict[str, Metric | MetricCollection] = {
                "loss": MeanMetric(nan_strategy="disable"),
                "acc": Accuracy("multiclass", num_classes=num_classes, validate_args=False),
            }
            if calibrated:
                collection["ece"] = CalibrationError(
                    "multiclass", num_classes=num_classes, validate_args=False
                )
                collection |= {
                    certified_name(r): MeanMetric(nan_strategy="disable") for r in self.certified_radii
                }
            return MetricCollection(collection, prefix=f"{stage}/", compute_groups=False)

        self.train_metrics = metrics("train", calibrated=False)
        self.val_metrics = metrics("val", calibrated=True)
        self.test_metrics = metrics("test", calibrated=True)
        bound = {"val/lipschitz", "test/lipschitz"} if self.certified_radii else set()
        self.metric_names = frozenset(
            {
                "train/batch_loss",
                "train/lr",
                *self.train_metrics,
                *self.val_metrics,
                *self.test_metrics,
                *bound,
            }
        )
        self._bound: Tensor | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the training loss, the network's penalty included."""
        x, y = batch
        logits, penalty = self.predict_with_penalty(x)
        loss: Tensor = self.loss(logits, y)
        detached = logits.detach()
        self.train_metrics["loss"].update(loss.detach().expand(len(y)))
        self.train_metrics["acc"].update(detached, y)
        for name, metric in self.train_metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True)
        self.log("train/batch_loss", loss.detach(), on_step=True, on_epoch=False, prog_bar=True)
        self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"], on_step=True, on_epoch=False)
        return loss if penalty is None else loss + penalty

    def on_validation_epoch_start(self) -> None:
        """Computes the Lipschitz bound once for all batches."""
        self._compute_bound()

    def on_test_epoch_start(self) -> None:
        """Computes the Lipschitz bound once for all batches."""
        self._compute_bound()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Updates the validation metrics."""
        self._evaluate(batch, self.val_metrics, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Updates the test metrics."""
        self._evaluate(batch, self.test_metrics, "test")

    def _compute_bound(self) -> None:
        if self.certified_radii and isinstance(self.network, Certified):
            data = getattr(self.trainer, "datamodule", None)
            scale = data.input_lipschitz if isinstance(data, Scaled) else 1.0
            self._bound = self.network.lipschitz_bound() * scale

    def _evaluate(self, batch: Batch, metrics: MetricCollection, stage: str) -> None:
        x, y = batch
        logits = self(x).float()
        metrics["loss"].update(nn.functional.cross_entropy(logits, y, reduction="none"))
        metrics["acc"].update(logits, y)
        metrics["ece"].update(logits.softmax(-1), y)
        if self._bound is not None:
            rivals = logits.scatter(-1, y[:, None], float("-inf")).amax(-1)
            margin = logits.gather(-1, y[:, None])[:, 0] - rivals
            for radius in self.certified_radii:
                metrics[certified_name(radius)].update((margin > 2**0.5 * self._bound * radius).float())
            self.log(f"{stage}/lipschitz", self._bound, on_step=False, on_epoch=True)
        for name, metric in metrics.items():
            self.log(name, metric, on_step=False, on_epoch=True, prog_bar=name in ("val/loss", "val/acc"))
