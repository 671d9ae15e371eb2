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


def resumed(checkpoint: str, model: Mapping[str, Any], command: str) -> None:
    """Refuses settings of the model that differ from those that a checkpoint was trained with.

    Lightning would restore the optimizer with its old settings, so that a new learning rate would be
    dropped in silence. Evaluation needs the same network; how it was trained does not matter there.

    Args:
        checkpoint: File to resume from or to evaluate.
        model: Settings of the module, ``class_path`` and ``init_args``.
        command: The subcommand.

    Raises:
        ValueError: They differ (names both values of the first that does), or the file is no checkpoint.
    """
    try:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        trained = state.get("hyper_parameters", {})
        state["state_dict"]
    except Exception as error:  # whatever the unpickler makes of a damaged file
        raise ValueError(f"{checkpoint} is damaged, or no checkpoint of this application") from error
    now = model.get("init_args", {})
    names = [name for name in trained if name in now and (command == "fit" or name == "network")]
    before = dict(flat({name: trained[name] for name in names}))
    after = dict(flat({name: now[name] for name in names}))
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        key = changed[0]
        raise ValueError(
            f"{checkpoint} was trained with model.init_args.{key}={before.get(key)}, not {after.get(key)}: "
            f"leave it as it was (the run's config.yaml says how), or start anew; settings that differ: "
            f"{len(changed)}"
        )


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings as dotted names and values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value
