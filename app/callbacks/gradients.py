"""True gradient norms, one record an optimizer step."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from lightning.fabric.plugins.precision.amp import _optimizer_handles_unscaling
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.trainer.states import RunningStage
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from app.callbacks.history import History
from app.callbacks.probe import evenly, layer_paths
from app.callbacks.records import Picture, Record, Recorder, Records, Scalar, logging_interval


class GradientNorms(Recorder):
    """Records the norms of the gradients that the optimizer is about to use, before they are clipped.

    Under accumulation they are those of the whole step, under a gradient scaler the unscaled ones. A layer is
    a module that itself owns a parameter with two dimensions or more; its norm is over those parameters.
    Layers are in order of registration. The horizontal axis is the number of optimizer steps done before.
    A logging step costs one norm over all parameters and one transfer; any other step costs nothing.

    Logged:
        - ``gradients/total_norm``: over all parameters, biases too.
        - ``gradients/weight_norm/first``, ``gradients/weight_norm/last``: of the first and the last layer.
        - ``gradients/weight_ratio_first_last``: the former over the latter; it tells vanishing and exploding
          from an all too small loss. Each at step 0 and at the trainer's logging steps.
        - ``gradients/weight_norm/<layer path>``: as of the last logging step, at each validation.
        - ``figures/weight_gradient_norm``: layer × step.

    Args:
        curves: of how many layers TensorBoard shows curves at most; the table has all of them.
        figures_every: validations from one picture to the next, with one at the end; 0 for none.

    Raises:
        ValueError: for a count out of range.

    Example:
        >>> trainer = Trainer(callbacks=[GradientNorms()], log_every_n_steps=10)  # doctest: +SKIP
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "gradients/total_norm": "norm of the gradient over all parameters, before clipping; healthy 1e-4 to "
        "10, falling slowly; jumps by orders of magnitude: lower the learning rate or clip",
        "gradients/weight_norm": "norm of the gradient of a layer's weights; healthy: within a factor of 100 "
        "over depth; falling or rising geometrically over depth: change the start's gain",
        "gradients/weight_ratio_first_last": "weight gradient of the first layer over the last; healthy .01 "
        "to 100; far below: gradients vanish, far above: they explode; orthogonal start, retraction or "
        "normalisation",
    }

    def __init__(self, curves: int = 10, figures_every: int = 5) -> None:
        super().__init__()
        for name, value in (("curves", curves), ("figures_every", figures_every)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.curves = curves
        self.figures_every = figures_every
        self._history = History({"gradients/weight_norm": "weight_gradient_norm"}, log=True)
        self._owners: dict[nn.Parameter, str] = {}
        self._latest: tuple[int, dict[str, float]] | None = None
        self._validations = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forgets the previous run."""
        super().setup(trainer, pl_module, stage)
        self._history.clear()
        self._latest, self._validations = None, 0

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must remember: norms not yet recorded, and what pictures are drawn from."""
        return {
            "latest": self._latest,
            "validations": self._validations,
            "history": self._history.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self._latest, self._validations = state_dict["latest"], state_dict["validations"]
        self._history.load_state_dict(state_dict["history"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Finds the layers."""
        super().on_train_start(trainer, pl_module)
        self._owners = {}
        for path, module in layer_paths(pl_module).items():
            for parameter in module.parameters(recurse=False):
                # Biases and scales count towards the total alone; a shared weight belongs to its first owner.
                self._owners.setdefault(parameter, path if parameter.dim() >= 2 else "")

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Measures at step 0 and at logging steps."""
        step, every = trainer.global_step, logging_interval(trainer)
        if every < 1 or (step > 0 and (step + 1) % every):
            return
        used = [(p.grad, owner) for p, owner in self._owners.items() if p.grad is not None]
        if not used:
            return
        scale = _scale(trainer, optimizer)
        squares: dict[str, float] = {}
        for norm, (_, owner) in zip(_norms([grad for grad, _ in used]).tolist(), used, strict=True):
            squares[owner] = squares.get(owner, 0.0) + (norm / scale) ** 2
        records: list[Record] = [Scalar("gradients/total_norm", math.sqrt(sum(squares.values())))]
        layers = {path: math.sqrt(square) for path, square in squares.items() if path}
        if layers:
            first, last = next(iter(layers.values())), next(reversed(layers.values()))
            records.append(Scalar("gradients/weight_norm", first, "first"))
            records.append(Scalar("gradients/weight_norm", last, "last"))
            records.append(Scalar("gradients/weight_ratio_first_last", first / last if last else math.nan))
            self._latest = (step, layers)
        self.records.write(trainer, records, step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Records all layers, as of the last logging step."""
        if trainer.state.stage == RunningStage.SANITY_CHECKING or self._latest is None:
            return
        step, norms = self._latest
        self._latest = None
        shown = set(evenly(len(norms), self.curves))
        records: list[Record] = [
            Scalar("gradients/weight_norm", norm, path, shown=place in shown)
            for place, (path, norm) in enumerate(norms.items())
        ]
        self._history.add(step, records)
        self._validations += 1
        if self.figures_every and self._validations % self.figures_every == 0:
            records += self._pictures(trainer)
        self.records.write(trainer, records, step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws the last state, if it is not on a picture yet."""
        if self.figures_every and self._validations % self.figures_every:
            self.records.write(trainer, self._pictures(trainer))

    def _pictures(self, trainer: Trainer) -> list[Picture]:
        return self._history.pictures() if Records.boards(trainer) else []


def _norms(grads: list[Tensor]) -> Tensor:
    """ℓ₂ norm of each gradient, in float32 at least: squares of half-precision numbers overflow."""
    dense = [grad.coalesce().values() if grad.is_sparse else grad for grad in grads]
    dense = [torch.view_as_real(grad) if grad.is_complex() else grad for grad in dense]
    wide = torch.float64 if any(grad.dtype == torch.float64 for grad in dense) else torch.float32
    norms = torch.stack(torch._foreach_norm(dense, 2, dtype=wide))
    # Sharded gradients: the sum over shards is collective, and all ranks are here.
    return norms.full_tensor() if isinstance(norms, DTensor) else norms


def _scale(trainer: Trainer, optimizer: Optimizer) -> float:
    """What gradients are still multiplied by: a fused optimizer unscales within its own step."""
    plugin = trainer.precision_plugin
    if not isinstance(plugin, MixedPrecision) or plugin.scaler is None:
        return 1.0
    return plugin.scaler.get_scale() if _optimizer_handles_unscaling(optimizer) else 1.0
