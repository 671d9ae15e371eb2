"""The shipped health rules but for the silent collapse, which has a file of its own."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from app.callbacks.records import Record
from app.callbacks.rule import Loss, Rule, layers


class Repeated(Rule):
    """A rule that believes a layer's fault when it has been there at ``patience`` looks in a row."""

    patience: ClassVar[int] = 2

    @abstractmethod
    def looked(self, records: Sequence[Record]) -> bool:
        """Whether these records are a look at what the rule judges."""

    @abstractmethod
    def faults(self, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
        """Yields layer and fault."""

    def judge(self, step: int, records: Sequence[Record], loss: Loss) -> str | None:
        """Counts looks in a row."""
        if not self.looked(records):
            return None
        now = dict(self.faults(records))
        self.memory = {layer: self.memory.get(layer, 0) + 1 for layer in now}
        for layer, fault in now.items():
            if self.memory[layer] >= self.patience:
                others = sum(count >= self.patience for count in self.memory.values()) - 1
                return f"{fault} in {layer}" + (f" and in {others} more" if others else "")
        return None


class DeadBranch(Repeated):
    """A layer or a branch of it has the same output for every input, or none of its own.

    Units that do not depend on the sample, phasors that are all on the circle or all at the centre,
    log-products at their clamp, a multiplicative branch without any variation.
    """

    name: ClassVar[str] = "dead_branch"
    title: ClassVar[str] = "dead or saturated branch"
    advice: ClassVar[str] = "a smaller learning rate with warm-up, a start with gain 1, or scaled inputs"

    LIMITS: ClassVar[Sequence[tuple[str, Callable[[float], bool], str]]] = (
        ("constant_fraction", lambda v: v > 0.9, "{:.0%} of the units do not depend on the input"),
        ("bounded_fraction", lambda v: v > 0.98, "{:.0%} of the phasors are bounded"),
        ("rms_radius", lambda v: v < 1e-3, "the phasors' radius is {:.1e}"),
        ("saturation_fraction", lambda v: v > 0.5, "{:.0%} of the log-products are at their bound"),
        ("ac_share", lambda v: v < 1e-5, "the multiplicative branches make up {:.1e} of what varies"),
        ("ac_share", lambda v: v > 1 - 1e-5, "the multiplicative branches make up {:.5f} of what varies"),
    )

    def looked(self, records: Sequence[Record]) -> bool:
        """Whether a layer says any of it."""
        return any(layers(records, f"diagnostics/{metric}") for metric, _, _ in self.LIMITS)

    def faults(self, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
        """Yields layers beyond a limit."""
        for metric, beyond, text in self.LIMITS:
            for layer, value in layers(records, f"diagnostics/{metric}").items():
                if beyond(value):
                    yield layer, text.format(value)


class StuckGate(Repeated):
    """A gate that has not left ½ after many looks: its penalty has no gradient there."""

    name: ClassVar[str] = "stuck_gate"
    title: ClassVar[str] = "gate stuck at ½"
    advice: ClassVar[str] = "another gate_bias (+2 or −2), or a higher learning rate"
    patience: ClassVar[int] = 12

    def looked(self, records: Sequence[Record]) -> bool:
        """Whether a layer has a gate."""
        return bool(layers(records, "diagnostics/gamma_mean"))

    def faults(self, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
        """Yields layers whose gates are all at ½."""
        spread = layers(records, "diagnostics/gamma_std")
        for layer, mean in layers(records, "diagnostics/gamma_mean").items():
            if abs(mean - 0.5) < 0.01 and spread.get(layer, 0.0) < 0.01:
                yield (
                    layer,
                    f"γ is {mean:.3f} ± {spread.get(layer, 0.0):.3f} at {self.patience} looks in a row",
                )


class LostOrthogonality(Rule):
    """A rotation or reflection that is none any more, or a phasor layer whose map has doubled its norm."""

    name: ClassVar[str] = "lost_orthogonality"
    title: ClassVar[str] = "orthogonality lost"
    advice: ClassVar[str] = "float32 for the residual, retraction, or a smaller learning rate"

    def judge(self, step: int, records: Sequence[Record], loss: Loss) -> str | None:
        """The worst operator, then the worst map."""
        for operator in ("rotation", "reflection"):
            for layer, error in layers(records, f"diagnostics/{operator}_orthogonality").items():
                if error > 1e-4:
                    return f"max |QᵀQ − I| of the {operator} is {error:.1e} in {layer}"
        norms = layers(records, "diagnostics/spectral_norm")
        for layer in layers(records, "diagnostics/bounded_fraction"):
            if layer in norms:
                start = self.memory.setdefault(layer, norms[layer])
                if norms[layer] > 2 * start:
                    return f"the spectral norm grew from {start:.3g} to {norms[layer]:.3g} in {layer}"
        return None


class GradientOverDepth(Rule):
    """A gradient that explodes or vanishes between the last layer and the first, or in time."""

    name: ClassVar[str] = "gradient"
    title: ClassVar[str] = "exploding or vanishing gradient"
    advice: ClassVar[str] = "an orthogonal start with gain 1, retraction or normalisation, clipping, warm-up"

    FACTOR: ClassVar[float] = 1e5
    JUMP: ClassVar[float] = 1e4
    PATIENCE: ClassVar[int] = 3

    def judge(self, step: int, records: Sequence[Record], loss: Loss) -> str | None:
        """Asks for several logging steps in a row; single ones pass."""
        total = layers(records, "gradients/total_norm").get("")
        ratio = layers(records, "gradients/weight_ratio_first_last").get("", math.nan)
        if total is None:
            return None
        fault = None
        if ratio > self.FACTOR or ratio < 1 / self.FACTOR:
            fault = f"it is {ratio:.1e} times as large in the first layer as in the last"
        elif total > self.JUMP * max(self.memory.get("start", total), 1.0):
            ends = layers(records, "gradients/weight_norm")
            first, last = ends.get("first", math.nan), ends.get("last", math.nan)
            fault = (
                f"its norm grew from {self.memory['start']:.1e} to {total:.1e} "
                f"({first:.1e} in the first layer, {last:.1e} in the last)"
            )
        seen = self.memory.get("seen", 0) + 1 if fault else 0
        self.memory = {"start": self.memory.get("start", total), "seen": seen}
        return fault if seen >= self.PATIENCE else None
