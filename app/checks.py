"""What is checked before a run begins, so that a mistake costs seconds and not an epoch."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from app.errors import hint
from app.modules import NetworkModule

FIXED = ("model", "data", "seed_everything")
"""Settings that a run which goes on must have kept."""

FREE = ("compile_network", "root", "download", "verify_checksums")
"""Of these, what changes nothing that is trained."""


def devices(settings: Namespace) -> None:
    """Refuses more processes on a CPU than it has cores; Lightning itself checks other devices.

    Raises:
        ValueError: More devices were asked for than there are cores.
    """
    asked, cores = str(settings.trainer.devices), len(os.sched_getaffinity(0))
    accelerator = settings.trainer.accelerator
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())
    if on_cpu and asked.isdigit() and int(asked) > cores:
        raise ValueError(f"trainer.devices must be at most {cores}, the number of CPU cores, got {asked}")


def intervals(settings: Namespace) -> None:
    """Refuses a validation every zero batches, by which Lightning would divide.

    Raises:
        ValueError: It was asked for.
    """
    if settings.trainer.val_check_interval == 0:
        raise ValueError("trainer.val_check_interval must be above 0, got 0")


def monitors(trainer: Trainer, module: LightningModule) -> None:
    """Refuses to watch a metric that the module does not log, or that is never computed.

    Only modules that declare their metrics can be checked; others fail at the end of the first epoch.

    Raises:
        ValueError: A checkpoint or early stopping watches such a metric.
    """
    if not isinstance(module, NetworkModule):
        return
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # set by the trainer's connector
        if not isinstance(callback, (ModelCheckpoint, EarlyStopping)) or callback.monitor is None:
            continue
        name = callback.monitor
        if name not in module.metric_names:
            raise ValueError(
                f"the monitor must be a metric that the module logs, got {name}"
                f"{hint(name, module.metric_names)} There are {', '.join(sorted(module.metric_names))}"
            )
        if name.startswith("val/") and trainer.limit_val_batches == 0:
            raise ValueError(
                f"trainer.limit_val_batches=0 leaves the monitored {name} unknown: monitor train/loss"
            )


def checkpoint(path: str) -> dict[str, Any]:
    """Returns what a checkpoint holds, on the CPU.

    Raises:
        ValueError: The file is damaged, or no checkpoint.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        state["state_dict"], state["loops"]["fit_loop"]["epoch_loop.batch_progress"], state["global_step"] + 0
    except Exception as error:  # whatever the unpickler makes of a damaged file
        raise ValueError(f"{path} is damaged, or no checkpoint of this application") from error
    return state


def evaluated(path: str, state: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuses to evaluate another network than that of the checkpoint; how it was trained does not matter.

    Raises:
        ValueError: They differ.
    """
    refuse(path, changes(trained_with(state, model, ["network"]), chosen(model, ["network"])))


def continued(path: str, state: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuses to go on with another model than that of the checkpoint.

    Lightning would restore the optimizer with its old settings, so that a new learning rate would be
    dropped in silence.

    Raises:
        ValueError: They differ.
    """
    if missing := [key for key in ("optimizer_states", "lr_schedulers") if key not in state]:
        raise ValueError(
            f"{path} can be evaluated, but not gone on with: it has no {' and no '.join(missing)}"
        )
    names = list(state.get("hyper_parameters", {}))
    refuse(path, changes(trained_with(state, model, names), chosen(model, names)))


def trained_with(state: Mapping[str, Any], model: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Returns those settings of a checkpoint that the model still has."""
    before, now = state.get("hyper_parameters", {}), model.get("init_args", {})
    return {"model": {"init_args": {name: before[name] for name in names if name in before and name in now}}}


def chosen(model: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Returns those settings of the model."""
    now = model.get("init_args", {})
    return {"model": {"init_args": {name: now[name] for name in names if name in now}}}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that differ: dotted name → (value before, value now)."""
    old, new = dict(flat(before)), dict(flat(now))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return {name: (old.get(name), new.get(name)) for name in names}


def is_fixed(name: str) -> bool:
    """Whether a run that goes on cannot have another value of a setting: what was trained, and on what."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    return first in FIXED and last not in FREE


def refuse(path: str, changed: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuses a checkpoint whose fixed settings are not those that were asked for.

    Raises:
        ValueError: There are such; the message has both values.
    """
    fixed = {name: values for name, values in changed.items() if is_fixed(name)}
    if fixed:
        listed = "; ".join(f"{name}={before}, not {now}" for name, (before, now) in list(fixed.items())[:5])
        more = f"; and {len(fixed) - 5} more" if len(fixed) > 5 else ""
        raise ValueError(
            f"{path} was trained with {listed}{more}: leave it as it was (the run's config.yaml says how), "
            "or start anew"
        )


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings as dotted names and values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value
