"""What the layers of a network say about themselves, at every validation."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray
from torch import Tensor

from app.callbacks.figures import lines, unit_discs
from app.callbacks.history import History
from app.callbacks.probe import ProbeBatch, activation_gradient_ratio, capture, evenly, measure, to_cpu
from app.callbacks.records import Matrix, Picture, Record, Recorder, Records, Scalar, Vector, tag

Drawn = dict[str, dict[str, NDArray[np.float32]]]  # metric → layer path → [n, 2] or [lines, points]


class Diagnostics(Recorder):
    """Runs one fixed batch through the network and records what each Diagnosable part of it says.

    The batch is the first of the validation (or test) data, captured once. The pass runs in eval mode,
    eagerly and without gradients, and changes neither modes, buffers nor random states: training goes on as
    if it had not happened. The sanity check before a fit is a validation too: it records the start.

    Everything goes in full to the table, ``diagnostics/records.arrow`` in the run's folder (see
    :func:`app.callbacks.read_diagnostics`). A hundred layers of eight metrics would be eight hundred curves,
    more than anybody reads and than TensorBoard shows at once; it gets an evenly spaced few, the summary over
    depth, and pictures of all layers against time.

    Logged:
        - ``diagnostics/<metric>/<layer path>``: 0-d tensors as curves, 1-d tensors as histograms.
        - ``diagnostics/<metric>/{first,last,min,mean,max}``: over depth, of metrics that layers have;
          with ``nonfinite``, a count, once any layer's value is NaN or infinite.
        - ``diagnostics/activation_gradient_ratio``: ‖∂L/∂z₁‖/‖∂L/∂z_last‖ for the outputs z of the first and
          the last layer (no other Diagnosable part inside), in fit only. Not the ratio of weight gradients,
          which :class:`~app.callbacks.GradientNorms` records and which behaves differently.
        - ``figures/<metric>``: layer × step, for the metrics in ``heat_maps``.
        - ``figures/<metric>``: ``[n, 2]`` tensors (or complex vectors) as points with the unit circle, other
          matrices as a line a row, for the first layer, those at a third and two thirds of the depth, and
          the last.

    Args:
        every_n_validations: how often to look, 1 for each validation.
        least_steps: optimizer steps from one look to the next at least, or half of those done, whichever
            is less: where epochs are short, looking at each of them would cost more than training. The last
            validation is looked at in any case.
        samples: size of the probe batch at most; of sequences, so many that they have 1024 positions.
        curves: of how many layers TensorBoard shows curves and histograms at most.
        heat_maps: metrics that are drawn layer × step.
        figures_every: looks from one set of pictures to the next, with one at the end of a fit; 0 for none.

    Raises:
        ValueError: for a count out of range; while running, for a diagnostic of more than two dimensions.

    Example:
        >>> trainer = Trainer(callbacks=[Diagnostics(every_n_validations=2)])  # doctest: +SKIP
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "activation_gradient_ratio": "gradient of the loss by the first layer's output over that by the last "
        "layer's, in norm; healthy .01 to 100; outside: gradients vanish or explode over depth, change the "
        "start's gain or use retraction",
    }

    def __init__(
        self,
        every_n_validations: int = 1,
        least_steps: int = 100,
        samples: int = 256,
        curves: int = 10,
        heat_maps: Sequence[str] = (
            "bounded_fraction",
            "participation_ratio",
            "spectral_norm",
            "gamma_mean",
            "pi_share",
            "nonlinear_share",
        ),
        figures_every: int = 5,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("every_n_validations", every_n_validations, 1),
            ("least_steps", least_steps, 0),
            ("samples", samples, 1),
            ("curves", curves, 0),
            ("figures_every", figures_every, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self.every_n_validations = every_n_validations
        self.least_steps = least_steps
        self.samples = samples
        self.curves = curves
        self.figures_every = figures_every
        self._history = History({f"diagnostics/{metric}": metric for metric in heat_maps})
        self._batch: ProbeBatch | None = None
        self._validations = 0
        self._looks = 0
        self._last, self._skipped = 0, False
        self._undrawn: list[Picture] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forgets the previous run."""
        super().setup(trainer, pl_module, stage)
        self._batch = None
        self._validations = self._looks = 0
        self._last, self._skipped = 0, False
        self._history.clear()
        self._undrawn = []

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must remember: when it has looked, and what pictures are drawn from."""
        return {
            "validations": self._validations,
            "looks": self._looks,
            "last": self._last,
            "history": self._history.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self._validations, self._looks = state_dict["validations"], state_dict["looks"]
        self._last = int(state_dict["last"])
        self._history.load_state_dict(state_dict["history"])

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Captures the probe batch, once."""
        self._capture(batch, batch_idx)

    def on_test_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Captures the probe batch, once."""
        self._capture(batch, batch_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks, on every rank (a sharded network needs them all); rank 0 writes."""
        start = trainer.state.stage == RunningStage.SANITY_CHECKING
        if start and trainer.global_step > 0:
            return  # resumed: this state was recorded when it was reached
        if not start:
            self._validations += 1
            if trainer.state.fn == TrainerFn.FITTING:
                if self._validations % self.every_n_validations:
                    return
                step = trainer.global_step
                self._skipped = step - self._last < min(self.least_steps, self._last / 2)
                if self._skipped:
                    return
                self._last = step
        self._look(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks once."""
        self._look(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks at the last state, if it was passed over, and draws it, if it is not on a picture yet."""
        if self._skipped:
            self._look(trainer, pl_module)
        if self._undrawn:
            self.records.write(trainer, self._undrawn)
            self._undrawn = []

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Lets the probe batch go."""
        self._batch = None

    def _capture(self, batch: Any, batch_idx: int) -> None:
        if self._batch is None and batch_idx == 0:
            self._batch = capture(batch, self.samples)
            if self._batch is None:
                rank_zero_warn("Diagnostics records nothing: a batch is neither (x, y) nor x")

    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._batch is None:
            return
        fitting = trainer.state.fn == TrainerFn.FITTING
        found = measure(trainer, pl_module, self._batch)
        # Where parameters are sharded, a backward pass outside of the training step disturbs the sharding.
        if fitting and not isinstance(trainer.strategy, (FSDPStrategy, ModelParallelStrategy)):
            ratio = activation_gradient_ratio(trainer, pl_module, self._batch)
            if ratio is not None:
                found["activation_gradient_ratio"] = {"": ratio}
        records, drawn = _to_records(found, self.curves)
        self._history.add(trainer.global_step, records)
        pictures: list[Picture] = []
        if self.figures_every and Records.boards(trainer):
            pictures = [*self._history.pictures(), *_pictures(drawn, trainer.global_step)]
        due = not fitting or (self._looks > 0 and self._looks % max(1, self.figures_every) == 0)
        self._looks += 1
        self._undrawn = [] if due else pictures
        self.records.write(trainer, [*records, *(pictures if due else [])])


def _to_records(found: Mapping[str, Mapping[str, Tensor]], curves: int) -> tuple[list[Record], Drawn]:
    """Everything that was found, in one transfer; and what is to be drawn, of four layers at most."""
    keys: list[tuple[str, str, bool]] = []
    values: list[Tensor] = []
    for metric, of in found.items():
        shown = {list(of)[i] for i in evenly(len(of), curves)}
        for path, value in of.items():
            if value.is_complex():
                value = torch.view_as_real(value)
            if value.dim() > 2:
                where = tag(metric, path)
                raise ValueError(f"a diagnostic must be 0-d, 1-d or 2-d, got {list(value.shape)} for {where}")
            keys.append((metric, path, path in shown))
            values.append(value)
    records: list[Record] = []
    matrices: Drawn = {}
    depths: dict[str, list[float]] = {}
    for (metric, path, show), value in zip(keys, to_cpu(values), strict=True):
        name = f"diagnostics/{metric}"
        if value.dim() == 0:
            records.append(Scalar(name, float(value), path, shown=show))
            if path:
                depths.setdefault(name, []).append(float(value))
        elif value.dim() == 1:
            records.append(Vector(name, value.numpy(), path, shown=show))
        else:
            records.append(Matrix(name, value.numpy(), path))
            matrices.setdefault(metric, {})[path] = value.numpy()
    for name, column in depths.items():
        records += _over_depth(name, np.array(column))
    four = {m: {list(of)[i]: of[list(of)[i]] for i in evenly(len(of), 4)} for m, of in matrices.items()}
    return records, four


def _over_depth(name: str, column: NDArray[np.float64]) -> list[Record]:
    """The summary that TensorBoard shows in place of a hundred curves; the table has the hundred."""
    finite = column[np.isfinite(column)]
    summary = {"first": column[0], "last": column[-1]}
    if finite.size:
        summary |= {"min": finite.min(), "mean": finite.mean(), "max": finite.max()}
    if finite.size < column.size:
        summary["nonfinite"] = column.size - finite.size
    return [Scalar(name, float(value), which, tabled=False) for which, value in summary.items()]


def _pictures(drawn: Drawn, step: int) -> list[Picture]:
    def picture(metric: str) -> Picture:
        title = f"{metric.replace('_', ' ')} at step {step}"
        points = all(values.shape[1] == 2 for values in drawn[metric].values())
        draw = unit_discs if points else lines
        return Picture(f"figures/{metric}", lambda: draw(title, drawn[metric]))

    return [picture(metric) for metric in drawn]
