"""Trains many small networks at once: what a study of hundreds of tiny fits needs.

One functional network is mapped over tasks and seeds, so that a step of fifty fits costs little more than a
step of one. The loop is the plain one: AdamW on mean squared error, cosine, the app's decay groups.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from app.protocols import PartlyDecayed, Penalised

Build = Callable[[], nn.Module]


class Samples(Protocol):
    """What a network is fitted to."""

    @property
    def seed(self) -> int:
        """Of the network's weights."""
        ...

    def fit_data(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Returns training and validation samples."""
        ...


class Task(Samples, Protocol):
    """A datamodule of tensors, as in ``datamodules.products``."""

    def test_data(self) -> tuple[Tensor, Tensor]:
        """Returns test samples."""
        ...

    def answer(self, x: Tensor) -> Tensor:
        """Returns the right answers, ``[N]``."""
        ...

    def success_error(self) -> float:
        """Returns the mean squared test error below which a fit is a success."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A unit whose weights are clamped after each step."""

    LIMITS: ClassVar[tuple[float, float]]


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters, the same for all tasks.

    Args:
        lr: Learning rate at the start; it follows a cosine.
        weight_decay: Of AdamW.
        steps: Of the optimizer.
        batch_size: Samples a step.
        penalised: Whether the network's own penalty is added to the loss.
        final: Share of the learning rate that is left at the end; 1 keeps it constant.
        order: Seed of the order of samples, the same for all tasks.
    """

    lr: float = 0.1
    weight_decay: float = 0.3
    steps: int = 6000
    batch_size: int = 250
    penalised: bool = False
    final: float = 0.0
    order: int = 0


def fit(build: Build, tasks: Sequence[Samples], recipe: Recipe) -> list[nn.Module]:
    """One trained network for each task, started from its seed; on one thread, the tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _fit(build, tasks, recipe)
    finally:
        torch.set_num_threads(threads)


def _fit(build: Build, tasks: Sequence[Samples], recipe: Recipe) -> list[nn.Module]:
    networks = []
    for task in tasks:
        torch.manual_seed(task.seed)
        networks.append(build())
    data = [task.fit_data()[0] for task in tasks]
    x, y = (torch.stack(tensors) for tensors in zip(*data, strict=True))
    names = [name for name, _ in networks[0].named_parameters()]
    parameters = {
        name: torch.stack([dict(n.named_parameters())[name].detach() for n in networks]).requires_grad_()
        for name in names
    }
    buffers = {
        name: torch.stack([dict(n.named_buffers())[name] for n in networks])
        for name, _ in networks[0].named_buffers()
    }
    base = networks[0]

    def loss(values: dict[str, Tensor], state: dict[str, Tensor], inputs: Tensor, answers: Tensor) -> Tensor:
        if recipe.penalised:
            module = _Penalising(base)
            values = {f"network.{name}": value for name, value in values.items()}
            state = {f"network.{name}": value for name, value in state.items()}
            prediction, penalty = torch.func.functional_call(module, (values, state), (inputs,))
            penalised: Tensor = (prediction - answers).square().mean() + penalty
            return penalised
        prediction = torch.func.functional_call(base, (values, state), (inputs,))
        plain: Tensor = (prediction - answers).square().mean()
        return plain

    losses = torch.vmap(loss)
    optimizer = torch.optim.AdamW(_groups(base, parameters), lr=recipe.lr, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: recipe.final + (1 - recipe.final) * 0.5 * (1 + math.cos(math.pi * step / recipe.steps)),
    )
    generator = torch.Generator().manual_seed(recipe.order)
    clamps = {
        f"{path}.weight": module.LIMITS
        for path, module in base.named_modules()
        if isinstance(module, Limited)
    }
    for _ in range(recipe.steps):
        picked = torch.randint(0, x.shape[1], (recipe.batch_size,), generator=generator)
        total: Tensor = losses(parameters, buffers, x[:, picked], y[:, picked]).sum()
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for name, limits in clamps.items():
                parameters[name].clamp_(*limits)
            for name, buffer in buffers.items():
                if name == "steps":
                    buffer.add_(1)
    for index, network in enumerate(networks):
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(parameters[name][index])
    return networks


class _Penalising(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(self.network, Penalised)
        return self.network.with_penalty(x)


def _groups(base: nn.Module, parameters: dict[str, Tensor]) -> list[dict[str, Any]]:
    """As ``app.modules.base.decay_groups``, for parameters with one more dimension."""
    exempt = set()
    for path, module in base.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim < 2 or name in (module.no_decay if isinstance(module, PartlyDecayed) else ()):
                exempt.add(f"{path}.{name}" if path else name)
    return [
        {"params": [v for k, v in parameters.items() if k not in exempt]},
        {"params": [v for k, v in parameters.items() if k in exempt], "weight_decay": 0.0},
    ]


def r_squared(prediction: Tensor, y: Tensor) -> float:
    """1 − MSE/Var y, NaN where it is not finite."""
    value = (1 - (prediction - y).square().mean() / y.var(correction=0)).item()
    return value if math.isfinite(value) else math.nan


def relative_error(prediction: Tensor, y: Tensor) -> float:
    """Root mean square error in units of the answer's deviation: a ratio of RMS values, as the shares are."""
    return ((prediction - y).square().mean().sqrt() / y.std(correction=0)).item()
