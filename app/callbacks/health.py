"""Health rules: what breaks while a network trains, said once and in one line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from app.callbacks.collapse import SilentCollapse
from app.callbacks.records import Record, Recorder, Scalar, Text
from app.callbacks.rule import Loss, Rule
from app.callbacks.rules import DeadBranch, GradientOverDepth, LostOrthogonality, StuckGate

SHIPPED: Sequence[Callable[[], Rule]] = (
    SilentCollapse,
    DeadBranch,
    StuckGate,
    LostOrthogonality,
    GradientOverDepth,
)


class HealthRules(Recorder):
    """Warns, once a run for each rule: what breaks, at which step, in which layer, and what usually helps.

    It listens to what :class:`~app.callbacks.Diagnostics` and :class:`~app.callbacks.GradientNorms` record,
    wherever they stand in the list. A rule is silent where nobody records what it judges. What ends a run is
    no rule but :class:`~app.callbacks.NonFiniteGuard`, which also has to keep checkpoints clean.

    Logged:
        - ``warnings/<rule>``: 1 at the step of the warning; its text in TensorBoard's text panel.

    Args:
        rules: what makes each of them, for every fit anew; by default ``SHIPPED``.

    Example:
        >>> trainer = Trainer(callbacks=[Diagnostics(), GradientNorms(), HealthRules()])  # doctest: +SKIP
    """

    def __init__(self, rules: Sequence[Callable[[], Rule]] | None = None) -> None:
        super().__init__()
        self._makers = SHIPPED if rules is None else rules
        self._forget()

    def _forget(self) -> None:
        self.rules = [make() for make in self._makers]
        self._told: set[str] = set()
        self._loss = Loss()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts to listen."""
        super().setup(trainer, pl_module, stage)
        if stage == TrainerFn.FITTING:
            self._forget()
            self.records.subscribe(self._hear)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must remember: what each rule does, what has been said, the first loss."""
        return {
            "rules": {rule.name: dict(rule.memory) for rule in self.rules},
            "told": sorted(self._told),
            "first_loss": self._loss.first,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it."""
        for rule in self.rules:
            rule.memory = dict(state_dict["rules"].get(rule.name, {}))
        self._told = set(state_dict["told"])
        self._loss.first = state_dict["first_loss"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Follows the loss on its device; nothing waits for it."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            self._loss.follow(loss.detach())

    def _hear(self, trainer: Trainer, step: int, records: Sequence[Record]) -> None:
        for rule in self.rules:
            if rule.name in self._told:
                continue
            found = rule.judge(step, records, self._loss)
            if found is None:
                continue
            self._told.add(rule.name)
            text = f"{rule.title} at step {step}: {found}. What usually helps: {rule.advice}."
            rank_zero_warn(text)
            tag = f"warnings/{rule.name}"
            self.records.write(trainer, [Scalar(tag, 1.0), Text(tag, text)], step)
