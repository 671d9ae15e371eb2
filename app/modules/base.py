"""What every module here shares: an injected network, its optimizer, schedule, penalty and constraints."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from app.modules.schedules import WarmupCosine
from app.protocols import Constrained, PartlyDecayed, Penalised

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]
ScheduleFactory = Callable[[Optimizer, int], LRScheduler]

Batch = tuple[Tensor, Tensor]

PLAIN_DATA = (type(None), bool, int, float, str)


def decay_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Splits the trained parameters of ``module`` into those with and those without weight decay.

    Decayed are parameters of two or more dimensions (matrices, kernels), except those that their
    module names in ``no_decay`` (:class:`app.protocols.PartlyDecayed`). Empty groups are left out.
    """
    decayed: dict[int, Tensor] = {}
    undecayed: dict[int, Tensor] = {}
    for owner in module.modules():
        exempt = owner.no_decay if isinstance(owner, PartlyDecayed) else frozenset()
        for name, parameter in owner.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in decayed | undecayed:
                group = undecayed if parameter.ndim < 2 or name in exempt else decayed
                group[id(parameter)] = parameter
    groups: list[dict[str, Any]] = []
    if decayed:
        groups.append({"params": list(decayed.values())})
    if undecayed:
        groups.append({"params": list(undecayed.values()), "weight_decay": 0.0})
    return groups


def unfuse(optimizer: Optimizer) -> None:
    """Makes an optimizer that was asked for its fused kernel do without, in place."""
    optimizer.defaults["fused"] = False
    for group in optimizer.param_groups:
        group["fused"] = False
    optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]  # set where fused


def is_plain(value: object) -> bool:
    """Whether a checkpoint that holds ``value`` still loads with ``weights_only=True``."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return type(value) in PLAIN_DATA


class NetworkModule(LightningModule):
    """Trains ``network`` with an injected optimizer and a schedule that is stepped at every optimizer step.

    Subclasses write ``training_step`` and the evaluation steps, and name what they log in
    ``metric_names``, so that a monitor that no metric has is found before training starts.

    Args:
        network: ``network(x)`` is the prediction for a batch of inputs, and so is ``module(x)``.
        optimizer: Called with the parameter groups of :func:`decay_groups`.
        schedule: Called with the optimizer and the number of optimizer steps of the whole fit.
        compile_network: Compiles the network in place; checkpoints are the same with and without.
    """

    metric_names: frozenset[str] = frozenset()

    def __init__(
        self,
        network: nn.Module,
        optimizer: OptimizerFactory = torch.optim.AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        compile_network: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = network
        self.optimizer = optimizer
        self.schedule = schedule
        self.compile_network = compile_network
        # Found once: a deep network has hundreds of parts, and asking each is not free.
        self._constrained = tuple(part for part in network.modules() if isinstance(part, Constrained))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the network's prediction for a batch of inputs."""
        prediction: Tensor = self.network(x)
        return prediction

    def predict_with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the prediction and the network's own term of the loss, where it has one."""
        if isinstance(self.network, Penalised):
            return self.network.with_penalty(x)
        return self(x), None

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the predictions for the inputs of a batch."""
        return self.forward(batch[0])

    def configure_model(self) -> None:
        """Compiles the network in place, which leaves the names in its state as they are."""
        if self.compile_network:
            self.network.compile()
            self.compile_network = False

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Builds optimizer and schedule; the schedule is stepped at every optimizer step."""
        groups = decay_groups(self)
        optimizer = self.optimizer(groups)
        # A fused step unscales gradients itself, after clipping: Lightning refuses the two, bf16 included.
        if self.trainer.precision in ("16-mixed", "bf16-mixed") and self.trainer.gradient_clip_val:
            unfuse(optimizer)
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise ValueError(
                "the schedule needs the length of the fit: set trainer.max_epochs or trainer.max_steps"
            )
        schedule = self.schedule(optimizer, max(1, int(steps)))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Takes the step, then puts constrained parameters back on their sets."""
        super().optimizer_step(*args, **kwargs)
        for part in self._constrained:
            part.constrain()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps only plain data of the hyper-parameters, so that every checkpoint loads without pickle."""
        settings = checkpoint.get("hyper_parameters", {})
        checkpoint["hyper_parameters"] = {key: value for key, value in settings.items() if is_plain(value)}
