"""Stops a run whose numbers are no longer finite, before a checkpoint of them is written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from app.callbacks.records import Record, Recorder, Scalar, logging_interval


class NonFiniteError(RuntimeError):
    """A loss, gradient or parameter is NaN or infinite.

    Attributes:
        step: optimizer steps done.
        name: the first tensor that is not finite, in order of registration.
    """

    def __init__(self, step: int, name: str) -> None:
        super().__init__(f"{name} is not finite at step {step}; the last checkpoint before it is kept")
        self.step = step
        self.name = name


class NonFiniteGuard(Recorder):
    """Ends the run once the training loss, the gradients or the parameters are not finite.

    The loss is read at the trainer's logging steps and before each validation, so a step waits for nothing.
    The total gradient norm is taken from :class:`~app.callbacks.GradientNorms`, if it is there; under a
    gradient scaler an infinite one is normal and passed over. Parameters are checked before each validation
    and before each checkpoint: a checkpoint that is not finite is never written, whoever asks for it. A layer
    that reports inputs which are not finite (``nonfinite_inputs``, as Sigma-Pi layers do) ends the run too.

    Logged:
        - ``warnings/nonfinite``: 1 at the step at which the run was stopped.

    Raises:
        NonFiniteError: with the step and the name of the first such tensor.

    Example:
        >>> trainer = Trainer(callbacks=[GradientNorms(), NonFiniteGuard()])  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._loss: Tensor | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts to listen for the gradient norm."""
        super().setup(trainer, pl_module, stage)
        self._loss = None
        if stage == TrainerFn.FITTING:
            self.records.subscribe(self._hear)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Reads the loss at logging steps."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        self._loss = loss.detach() if isinstance(loss, Tensor) else None
        every = logging_interval(trainer)
        if every > 0 and trainer.global_step % every == 0:
            self._check_loss(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads the last loss and the parameters; a validation of NaN would only hide where it came from."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._check_loss(trainer, pl_module)
            self._check_parameters(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuses a checkpoint of parameters that are not finite."""
        self._check_parameters(trainer, pl_module)

    def _hear(self, trainer: Trainer, step: int, records: Sequence[Record]) -> None:
        plugin = trainer.precision_plugin
        scaled = isinstance(plugin, MixedPrecision) and plugin.scaler is not None
        for record in records:
            match record:
                case Scalar("diagnostics/nonfinite_inputs", value, layer, _, True) if value > 0:
                    self._stop(trainer, f"{value:.2%} of the input of {layer}")
                case Scalar("gradients/total_norm", value) if not scaled and not math.isfinite(value):
                    self._stop(trainer, _first_of(trainer.lightning_module) or "the total gradient norm")

    def _check_loss(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._loss is not None and not torch.isfinite(self._loss).all():
            # Parameters and gradients of the step say more than the loss, if they broke first.
            self._stop(trainer, _first_of(pl_module, gradients=False) or "the training loss")

    def _check_parameters(self, trainer: Trainer, pl_module: LightningModule) -> None:
        parameters = [p.detach() for p in pl_module.parameters() if p.is_floating_point() or p.is_complex()]
        if parameters and not all_finite(parameters):
            self._stop(trainer, _first_of(pl_module, gradients=False) or "a parameter")

    def _stop(self, trainer: Trainer, name: str) -> None:
        self.records.write(trainer, [Scalar("warnings/nonfinite", 1.0)])
        raise NonFiniteError(trainer.global_step, name)


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every element of every tensor is finite, with one wait for the device.

    The largest magnitude is used, not a norm: squares of finite numbers can overflow.
    """
    largest = torch._foreach_norm([t for t in tensors if t.numel()], float("inf"))
    return bool(torch.isfinite(torch.stack([value.float() for value in largest])).all())


def _first_of(module: LightningModule, gradients: bool = True) -> str | None:
    """Name of the first parameter, then of the first gradient, that is not finite."""
    for name, parameter in module.named_parameters():
        if not torch.isfinite(parameter).all():
            return name.replace("_orig_mod.", "")
    if gradients:
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                return "the gradient of " + name.replace("_orig_mod.", "")
    return None
