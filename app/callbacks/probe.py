"""Looking into a network without touching it: one fixed batch, hooks for the length of one forward pass."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from app.protocols import Diagnosable

POSITIONS = 1024
"""Of all sequences of a probe batch together, at most: what is said of one position, a thousand say well."""


@dataclass(frozen=True)
class ProbeBatch:
    """Inputs and targets of the probe, normal tensors on the module's device."""

    inputs: Tensor
    targets: Tensor | None


def capture(batch: Any, samples: int) -> ProbeBatch | None:
    """Copies the first samples of a batch ``(x, y)`` or ``x``; ``None`` for any other kind of batch.

    Inputs of three dimensions are sequences, ``[samples, positions, features]``.
    """
    parts = batch if isinstance(batch, (tuple, list)) else (batch,)
    if parts and isinstance(parts[0], Tensor) and parts[0].dim() == 3:
        samples = min(samples, max(4, POSITIONS // max(1, parts[0].shape[1])))
    # Tensors made under inference mode may never meet autograd; a clone made outside of it may.
    with torch.inference_mode(False):
        tensors = [part[:samples].detach().clone() for part in parts[:2] if isinstance(part, Tensor)]
    if not tensors or not isinstance(parts[0], Tensor):
        return None
    return ProbeBatch(tensors[0], tensors[1] if len(tensors) > 1 else None)


def layer_paths(root: nn.Module) -> dict[str, nn.Module]:
    """Path → module in order of registration.

    Indices are padded with zeros, so that names sort by depth, and the wrapper that ``torch.compile(module)``
    adds leaves no trace, so that compiled and eager runs have the same names.
    """
    paths: dict[str, nn.Module] = {}
    for name, module in root.named_modules():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        # A wrapper and what it wraps share a path; the wrapped one comes later and is the one hooked.
        paths[".".join(f"{int(part):03d}" if re.fullmatch(r"\d+", part) else part for part in parts)] = module
    return paths


def evenly(count: int, picks: int) -> list[int]:
    """At most ``picks`` of ``range(count)``, evenly spaced, with both ends."""
    if count <= picks:
        return list(range(count))
    return [round(i * (count - 1) / (picks - 1)) for i in range(picks)] if picks > 1 else [0][:picks]


@contextlib.contextmanager
def undisturbed(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """Eval mode, eager, the trainer's precision; modes, buffers and random states are put back afterwards."""
    modes = {part: part.training for part in module.modules()}
    # Expanded buffers (stride 0) cannot be written in place, neither by a forward pass nor by us.
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers() if 0 not in buffer.stride()]
    randomness = isolate_rng(include_cuda=module.device.type == "cuda")
    # Hooks do not fire in compiled code, hence eager.
    eager = torch.compiler.set_stance("force_eager")
    with randomness, eager, trainer.precision_plugin.forward_context():
        try:
            module.eval()
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def measure(trainer: Trainer, module: LightningModule, batch: ProbeBatch) -> dict[str, dict[str, Tensor]]:
    """Runs the batch and asks every Diagnosable part that it passes: metric → layer path → tensor.

    A part that is passed several times in one forward is asked the first time.
    """
    found: dict[str, dict[str, Tensor]] = {}
    parts = {path: part for path, part in layer_paths(module).items() if isinstance(part, Diagnosable)}
    asked: set[str] = set()
    busy = False

    def ask(path: str, part: Diagnosable, inputs: tuple[Any, ...]) -> None:
        nonlocal busy
        if busy or path in asked:  # what diagnostics() itself calls is no part of the forward pass
            return
        busy = True
        try:
            answers = part.diagnostics(*inputs)
        finally:
            busy = False
        asked.add(path)
        for metric, answer in answers.items():
            found.setdefault(metric, {})[path] = answer.detach()

    with contextlib.ExitStack() as stack:
        # Before forward: a layer that works in place would change the inputs under our hands.
        for path, part in parts.items():

            def hook(_: nn.Module, inputs: tuple[Any, ...], path: str = path, part: Any = part) -> None:
                ask(path, part, inputs)

            stack.callback(_as_module(part).register_forward_pre_hook(hook).remove)
        stack.enter_context(undisturbed(trainer, module))
        stack.enter_context(torch.no_grad())
        module(batch.inputs)
    order = {path: place for place, path in enumerate(parts)}
    return {m: dict(sorted(of.items(), key=lambda item: order[item[0]])) for m, of in found.items()}


def activation_gradient_ratio(trainer: Trainer, module: LightningModule, batch: ProbeBatch) -> Tensor | None:
    """‖∂L/∂z₁‖₂ / ‖∂L/∂z_last‖₂ over the probe batch, z the outputs of the first and last Diagnosable layer.

    A layer is a Diagnosable part that contains no other. L is the cross-entropy where targets are class
    indices, the mean squared error where they have the shape of the prediction. ``None`` where there are
    fewer than two such layers, other targets, or no gradient path. Parameters keep their ``.grad``.
    """
    every = {path: part for path, part in layer_paths(module).items() if isinstance(part, Diagnosable)}
    outer = {"", *(path[: end.start()] for path in every for end in re.finditer(r"\.", path))}
    leaves = [_as_module(part) for path, part in every.items() if path not in outer]
    if len(leaves) < 2 or batch.targets is None:
        return None
    outputs: dict[nn.Module, Tensor] = {}

    def keep(part: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            outputs.setdefault(part, output)

    with contextlib.ExitStack() as stack:
        for part in leaves:
            stack.callback(part.register_forward_hook(keep).remove)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(undisturbed(trainer, module))
        loss = _loss(module(batch.inputs), batch.targets)
        passed = list(outputs.values())
        if loss is None or len(passed) < 2:
            return None
        # An output that the loss does not depend on has gradient zero, and the ratio says so.
        first, last = torch.autograd.grad(loss, [passed[0], passed[-1]], materialize_grads=True)
    ratio: Tensor = first.float().norm() / last.float().norm()
    return ratio


def to_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Moves many small tensors in one transfer, as float32."""
    if not tensors:
        return []
    device = tensors[0].device
    flat = torch.cat([t.to(device, torch.float32).reshape(-1) for t in tensors]).cpu()
    pieces = torch.split(flat, [t.numel() for t in tensors])
    return [piece.reshape(t.shape) for piece, t in zip(pieces, tensors, strict=True)]


def _loss(prediction: Any, targets: Tensor) -> Tensor | None:
    if not isinstance(prediction, Tensor):
        return None
    if not targets.is_floating_point() and targets.shape == prediction.shape[:1] and prediction.dim() == 2:
        return nn.functional.cross_entropy(prediction.float(), targets)
    if targets.is_floating_point() and targets.shape == prediction.shape:
        return nn.functional.mse_loss(prediction.float(), targets.float())
    return None


def _as_module(part: Any) -> nn.Module:
    assert isinstance(part, nn.Module)
    return part
