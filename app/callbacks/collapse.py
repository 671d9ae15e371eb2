"""The silent collapse of a deep network without residual or normalisation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.callbacks.records import Record
from app.callbacks.rule import Loss, Rule, layers


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


class SilentCollapse(Rule):
    """The network has silently stopped telling its inputs apart.

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
    """

    name: ClassVar[str] = "silent_collapse"
    title: ClassVar[str] = "silent collapse"
    advice: ClassVar[str] = "warm-up and a decaying learning rate, complex mixing, or retraction"

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[str, float] = {}
        self._broke_at: dict[str, int] = {}

    def judge(self, step: int, records: Sequence[Record], loss: Loss) -> str | None:
        """Judges when the layers have spoken, which is once a validation; only then waits for the loss."""
        heard = _heard(records)
        for signal in SIGNALS:
            value = heard.get(signal, math.nan)
            if not math.isfinite(value):
                continue
            start = self.memory.setdefault(signal.name, value)
            self._now[signal.name] = value
            if signal.broke(start, value):
                self._broke_at.setdefault(signal.name, step)
            else:
                self._broke_at.pop(signal.name, None)
        if RANK not in heard or RANK.name not in self._broke_at:
            return None
        if GRADIENT.name in self._now and GRADIENT.name not in self._broke_at:
            return None
        return None if loss.falls else self._text()

    def _text(self) -> str:
        lines = []
        for name, now in self._now.items():
            at = self._broke_at.get(name)
            state = "holds" if at is None else f"broke at step {at}"
            lines.append(f"{name} {self.memory[name]:.3g} → {now:.3g}, {state}")
        return f"the network no longer tells its inputs apart ({'; '.join(lines)})"


def _heard(records: Sequence[Record]) -> dict[Signal, float]:
    """The signals that these records carry."""
    heard: dict[Signal, float] = {}
    if first := layers(records, "gradients/weight_norm").get("first"):
        heard[GRADIENT] = first
    norms = [v for v in layers(records, "diagnostics/spectral_norm").values() if math.isfinite(v)]
    if norms:
        heard[NORM] = sum(norms) / len(norms)
    if fractions := list(layers(records, "diagnostics/bounded_fraction").values()):
        heard[BOUNDED] = fractions[len(fractions) // 10]
    if ratios := list(layers(records, "diagnostics/participation_ratio").values()):
        heard[RANK] = ratios[-1]
    return heard
