"""What a health rule is, and what it is given."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from app.callbacks.records import Record, Scalar


class Loss:
    """The training loss as it was at first and as it is now; nothing waits for the device until asked."""

    def __init__(self) -> None:
        self.first: Tensor | None = None
        self._now: Tensor | None = None

    def follow(self, loss: Tensor) -> None:
        """Takes the loss of one batch."""
        self.first = loss if self.first is None else self.first
        # A running mean over some ten batches: one lucky batch must not hide a collapse.
        self._now = loss if self._now is None else torch.lerp(self._now, loss, 0.1)

    @property
    def falls(self) -> bool:
        """Whether it is well below its start."""
        if self._now is None or self.first is None:
            return False
        # Chance lies a little below the loss of an untrained network, whose wrong answers are not all equal.
        return bool(self._now < 0.7 * self.first)


class Rule(ABC):
    """One idea of what can go wrong. What it must remember over a resumption is in ``memory``."""

    name: ClassVar[str]
    """Of the tag ``warnings/<name>``."""
    title: ClassVar[str]
    """How the warning begins."""
    advice: ClassVar[str]
    """What usually helps."""

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}

    @abstractmethod
    def judge(self, step: int, records: Sequence[Record], loss: Loss) -> str | None:
        """Takes what was recorded at ``step``; returns what is wrong and in which layer, or ``None``."""


def layers(records: Sequence[Record], metric: str) -> dict[str, float]:
    """Layer → value of a metric, in order of depth; summaries over depth are left out."""
    return {
        record.layer: record.value
        for record in records
        if isinstance(record, Scalar) and record.tabled and record.metric == metric
    }
