"""The dashboard: layout, guide and the run's row among others; one callback brings all that it shows."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn

from app.callbacks.diagnostics import Diagnostics
from app.callbacks.gradients import GradientNorms
from app.callbacks.guide import guide
from app.callbacks.health import HealthRules
from app.callbacks.layout import LAYOUT
from app.callbacks.nonfinite import NonFiniteGuard
from app.callbacks.records import Recorder, Text
from app.callbacks.settings import Setting, Summary, scalars

BRINGS = (Diagnostics, GradientNorms, HealthRules, NonFiniteGuard)


class Dashboard(Recorder):
    """All that is seen while a network trains: adding this one callback to any trainer is enough.

    It brings :class:`~app.callbacks.Diagnostics`, :class:`~app.callbacks.GradientNorms`,
    :class:`~app.callbacks.HealthRules` and :class:`~app.callbacks.NonFiniteGuard`, each only where the
    trainer has none of its own. The layout of the *Custom Scalars* tab depends on tags alone, never on the
    network, so that many runs in one TensorBoard share one clean layout; charts of what a run does not record
    stay empty. (Custom scalars have no logarithmic axis: what needs one has a tag of its own, its log₁₀.)

    Logged:
        - the layout, at the start of a fit.
        - ``guide``: for each metric what it means, its healthy range and what to do, in the text panel.
        - the run's row in the *HParams* tab, in the sub-run ``hparams``: the settings, and ``final/<metric>``
          when a fit or a test ends. It is a run of its own because the columns of that tab are the settings
          of all runs then, and its metrics these few.

    Args:
        settings: what the row shows; by default the module's and the datamodule's hyper-parameters that are
            numbers, words or truth values. The command line puts here what differs from the defaults.

    Example:
        >>> trainer = Trainer(callbacks=[Dashboard()])  # doctest: +SKIP
    """

    def __init__(self, settings: Mapping[str, Setting] | None = None) -> None:
        super().__init__()
        self.settings = settings
        self._summaries: list[Summary] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Adds what is missing, right behind itself: the trainer calls their ``setup`` next."""
        super().setup(trainer, pl_module, stage)
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        missing = [kind() for kind in BRINGS if not any(isinstance(c, kind) for c in callbacks)]
        place = callbacks.index(self) + 1
        callbacks[place:place] = missing

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes layout, guide and the run's settings."""
        self._summaries = []
        boards = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not trainer.is_global_zero or not boards:
            return
        text = guide([*pl_module.modules(), *trainer.callbacks])  # type: ignore[attr-defined]
        settings = self.settings if self.settings is not None else scalars(trainer, pl_module)
        for logger in boards:
            logger.experiment.add_custom_scalars(LAYOUT)
            self._summaries.append(Summary(logger.log_dir, settings))
        if text and trainer.ckpt_path is None:  # a run that goes on has it
            self.records.write(trainer, [Text("guide", text)])

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the metrics of the last validation to the row."""
        self._finish(trainer)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the test metrics to the row of the fit before it."""
        self._finish(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Flushes the row; a test that follows a fit still adds to it."""
        for summary in self._summaries:
            summary.flush()

    def _finish(self, trainer: Trainer) -> None:
        fitted = trainer.state.fn in (TrainerFn.FITTING, TrainerFn.TESTING)
        for summary in self._summaries if fitted else []:
            summary.finish(trainer.callback_metrics, trainer.global_step)
