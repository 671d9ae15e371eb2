"""A health rule: the silent collapse of a deep network without residual or normalisation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from app.callbacks.records import Record, Recorder, Scalar, Text


@dataclass(frozen=True)
class Signal:
    """One of the four signals and the rule ``broke(start, now)``."""

    name: str
    broke: Callable[[float, float], bool]


NORM = Signal("mean spectral norm", lambda start, now: now > 1.1 * start)
BOUNDED = Signal("bounded fraction a tenth into the depth", lambda start, now: now > start + 0.25)
RANK = Signal("participation ratio of the last layer", lambda start, now: now < min(1.5, start / 2))
GRADIENT = Signal("weight gradient of the first layer", lambda start, now: now < 0.01 * start)
SIGNALS = (NORM, BOUNDED, RANK, GRADIENT)


class CollapseWarning(Recorder):
    """Warns, once a run, when the network has silently stopped telling its inputs apart.

    With a constant learning rate the maps of a deep plain network drift away from orthogonal ones: spectral
    norms grow, most phasors are bounded, all states fall onto one direction and no gradient reaches the first
    layer. Nothing becomes NaN; the loss returns to chance and stays there. Four signals show it:

    ==================================================  =====================================
    signal                                              broke when
    ==================================================  =====================================
    mean spectral norm of the layers                    10 % above its start
    bounded fraction a tenth of the way into the depth  more than ¼ above its start
    participation ratio of the last layer               below 1.5, and below half of its start
    weight gradient of the first layer                  below 1 % of its start
    ==================================================  =====================================

    Each can break in a healthy run: gradients fade when everything is learnt, a dip passes. The rule asks for
    what makes them a collapse: states on one direction (third), no gradient (fourth, if it is recorded), and
    a training loss that is no better than at the start. The warning lists all four.

    It listens to what :class:`~app.callbacks.Diagnostics` and :class:`~app.callbacks.GradientNorms` record,
    wherever they stand in the list, and judges at every validation. It is silent without Diagnosable layers.

    Logged:
        - ``warnings/silent_collapse``: 1 at the step of the warning; the text in TensorBoard's text panel.

    Example:
        >>> trainer = Trainer(callbacks=[Diagnostics(), GradientNorms(), CollapseWarning()])  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._start: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._broke_at: dict[str, int] = {}
        self._first_loss: Tensor | None = None
        self._loss: Tensor | None = None
        self._warned = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts to listen."""
        super().setup(trainer, pl_module, stage)
        if stage == TrainerFn.FITTING:
            self._forget()
            self.records.subscribe(self._hear)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must remember: the values at the start, and that it has warned."""
        return {"start": dict(self._start), "first_loss": self._first_loss, "warned": self._warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self._start = dict(state_dict["start"])
        self._first_loss = state_dict["first_loss"]
        self._warned = bool(state_dict["warned"])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Follows the loss on its device; nothing waits for it."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            loss = loss.detach()
            self._first_loss = loss if self._first_loss is None else self._first_loss
            # A running mean over some ten batches: one lucky batch must not hide a collapse.
            self._loss = loss if self._loss is None else torch.lerp(self._loss, loss, 0.1)

    def _hear(self, trainer: Trainer, step: int, records: Sequence[Record]) -> None:
        heard = _heard(records)
        for signal in SIGNALS:
            value = heard.get(signal, math.nan)
            if not math.isfinite(value):
                continue
            start = self._start.setdefault(signal.name, value)
            self._now[signal.name] = value
            if signal.broke(start, value):
                self._broke_at.setdefault(signal.name, step)
            else:
                self._broke_at.pop(signal.name, None)
        # Judged when the layers have spoken, which is once a validation; only then is the loss waited for.
        if RANK not in heard or self._warned or RANK.name not in self._broke_at:
            return
        if GRADIENT.name in self._now and GRADIENT.name not in self._broke_at:
            return
        if self._learns():
            return
        self._warned = True
        text = self._text(trainer.global_step)
        rank_zero_warn(text)
        self.records.write(
            trainer, [Scalar("warnings/silent_collapse", 1.0), Text("warnings/silent_collapse", text)]
        )

    def _learns(self) -> bool:
        if self._loss is None or self._first_loss is None:
            return False
        # Chance lies a little below the loss of an untrained network, whose wrong answers are not all equal.
        return bool(self._loss < 0.7 * self._first_loss)

    def _text(self, step: int) -> str:
        lines = []
        for signal in SIGNALS:
            if signal.name not in self._now:
                continue
            broke = (
                f", broke at step {self._broke_at[signal.name]}"
                if signal.name in self._broke_at
                else ", holds"
            )
            lines.append(
                f"{signal.name} {self._start[signal.name]:.3g} → {self._now[signal.name]:.3g}{broke}"
            )
        return (
            f"silent collapse at step {step}: the network no longer tells its inputs apart "
            f"({'; '.join(lines)}). "
            "What usually helps: warm-up and a decaying learning rate, complex mixing, or retraction."
        )


def _heard(records: Sequence[Record]) -> dict[Signal, float]:
    """The signals that these records carry."""
    columns: dict[str, list[float]] = {}
    heard: dict[Signal, float] = {}
    for record in records:
        if not isinstance(record, Scalar):
            continue
        if record.metric == "gradients/weight_norm" and record.layer == "first":
            heard[GRADIENT] = record.value
        elif record.tabled:  # layer by layer in order of depth; summaries over depth are not
            columns.setdefault(record.metric, []).append(record.value)
    if norms := [norm for norm in columns.get("diagnostics/spectral_norm", []) if math.isfinite(norm)]:
        heard[NORM] = sum(norms) / len(norms)
    if fractions := columns.get("diagnostics/bounded_fraction"):
        heard[BOUNDED] = fractions[len(fractions) // 10]
    if ratios := columns.get("diagnostics/participation_ratio"):
        heard[RANK] = ratios[-1]
    return heard
