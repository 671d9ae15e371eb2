"""Learning-rate schedules per optimizer step, as functions of the total number of steps."""

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


class Constant(LambdaLR):
    """The optimizer's own learning rate at every step: lr(t) = lr.

    Args:
        optimizer: Whose learning rates are set.
        total_steps: Number of optimizer steps of the whole fit (unused, the signature is shared).
    """

    def __init__(self, optimizer: Optimizer, total_steps: int) -> None:
        self.total_steps = total_steps
        super().__init__(optimizer, lambda step: 1.0)


class WarmupCosine(LambdaLR):
    """Linear warm-up to the optimizer's learning rate, then half a cosine down to a fraction of it.

    With T total and w warm-up steps, lr(t)/lr = (t + 1)/w for t < w, and
    f + (1 − f)·(1 + cos(π(t − w)/(T − w)))/2 after it.

    Args:
        optimizer: Whose learning rates are set.
        total_steps: T, number of optimizer steps of the whole fit; at least 1.
        warmup_steps: w ≥ 0; a fit shorter than the warm-up warms up throughout.
        final_fraction: f in [0, 1], what is left of the learning rate at the end.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self, optimizer: Optimizer, total_steps: int, warmup_steps: int = 100, final_fraction: float = 0.0
    ) -> None:
        if total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {total_steps}")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must be at least 0, got {warmup_steps}")
        if not 0 <= final_fraction <= 1:
            raise ValueError(f"final_fraction must lie in [0, 1], got {final_fraction}")
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.final_fraction = final_fraction
        super().__init__(optimizer, self._factor)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the step, not the shape: a fit that is resumed for longer follows the longer schedule."""
        own = {name: vars(self)[name] for name in ("total_steps", "warmup_steps", "final_fraction")}
        super().load_state_dict({**state_dict, **own})
        rates = [base * self._factor(self.last_epoch) for base in self.base_lrs]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates

    def _factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        progress = min(1.0, (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps))
        return self.final_fraction + (1 - self.final_fraction) * (1 + math.cos(math.pi * progress)) / 2
