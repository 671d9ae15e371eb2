"""What a network or a datamodule may offer to the rest of the application, one method each.

Callbacks and modules know these protocols and no concrete class: whatever says that it can do a
thing is asked to do it. A class needs no import from here to conform (structural typing).
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Diagnosable(Protocol):
    """A module that can say how it is doing, for the inputs that it has just received."""

    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Recomputes its health from the positional inputs of ``forward``.

        Pure: stores nothing, draws no random number, changes no state or mode. A 0-d tensor is a
        curve, a 1-d tensor a histogram, ``[n, 2]`` or a complex vector points beside the unit circle,
        and any other matrix a line a row. Tensors stay on the device; nothing is synchronised here.
        """
        ...


@runtime_checkable
class Explained(Protocol):
    """A class that says what the metrics mean that it computes."""

    METRICS: ClassVar[Mapping[str, str]]
    """Metric → one sentence of three parts, "meaning; healthy range; what is wrong: what to do"."""


@runtime_checkable
class Penalised(Protocol):
    """A network whose loss has a term of its own."""

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction for ``x`` and the 0-d penalty to add to the loss, both with gradients."""
        ...


@runtime_checkable
class Constrained(Protocol):
    """A module whose parameters live on a set that an optimizer step leaves."""

    def constrain(self) -> None:
        """Puts the parameters back, in place, without gradients. Called after each optimizer step."""
        ...


@runtime_checkable
class PartlyDecayed(Protocol):
    """A module some of whose own parameters must not be pulled to zero by weight decay."""

    no_decay: ClassVar[frozenset[str]]
    """Names of its direct parameters that get none; those with fewer than two dimensions never do."""


@runtime_checkable
class Certified(Protocol):
    """A network that knows a bound on its own Lipschitz constant."""

    def lipschitz_bound(self) -> Tensor:
        """Returns an upper bound on ‖f(x) − f(y)‖₂ / ‖x − y‖₂ over all x ≠ y, as a 0-d tensor."""
        ...


@runtime_checkable
class Scaled(Protocol):
    """A datamodule that rescales its inputs before the network sees them."""

    @property
    def input_lipschitz(self) -> float:
        """The factor by which distances between raw inputs grow at most: 1/min σ for x ↦ (x − μ)/σ."""
        ...


@runtime_checkable
class Floored(Protocol):
    """A datamodule that knows what a trivial or an ideal predictor reaches."""

    def floors(self) -> Mapping[str, float]:
        """Returns predictor name → its value of the task's loss."""
        ...


@runtime_checkable
class UnitNormed(Protocol):
    """A datamodule on sequences of unit vectors, whose predictions should have norm 1."""

    def norm_probes(self) -> Mapping[str, Tensor]:
        """Returns inputs ``[B, T, D]`` to measure predicted norms on, the same on every rank.

        ``fresh``: unit vectors drawn anew at every position; ``echo``: one vector repeated with little noise;
        ``start``: sequences of the task, which a network continues by its own predictions.
        """
        ...
