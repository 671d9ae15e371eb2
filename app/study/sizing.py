"""Networks of a study matched in trained parameters, and how long their runs will take."""

import contextlib
import io
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jsonargparse import ArgumentParser
from torch import nn

from app.cli import CLI
from app.errors import Mistake, one_line
from app.networks.matching import match_width, trained_parameters
from app.study.plan import Model, Settings, Study, Task
from app.study.runs import SIZE, Pair, Run, base_settings, pairs


@dataclass(frozen=True)
class Sized:
    """What was found for a task and a model.

    Args:
        settings: That match it in size; empty where it is left alone.
        parameters: Trained ones.
        reference: Those of the study's reference.
    """

    settings: Settings
    parameters: int
    reference: int


def objects(run: Run) -> CLI:
    """Makes module, data and trainer of a run, without a folder.

    Raises:
        Mistake: Its settings are wrong; the message names the run.
    """
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), unlogged():
            return CLI(run.arguments, run=False)
    except Exception as error:
        raise Mistake(f"{run.path}: {one_line(error)}") from error
    except SystemExit as error:
        raise Mistake(f"{run.path}: {' '.join(quiet.getvalue().split())}") from error


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keeps Lightning from saying, once a network, which devices there are."""
    talkers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for talker, level in zip(talkers, levels, strict=True):
            talker.setLevel(level)


def network_settings(made: CLI) -> dict[str, Any]:
    """Returns class path and arguments of the network that a run trains."""
    settings: dict[str, Any] = made.config_dump["model"]["init_args"]["network"]
    return settings


def make(settings: Mapping[str, Any]) -> nn.Module:
    """Makes a network from class path and arguments."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(nn.Module, "network")
    made: nn.Module = parser.instantiate(parser.parse_object({"network": dict(settings)})).network
    return made


def first_run(study: Study, preset: str, task: str, model: str, extra: Settings) -> Run:
    """The run of a pair by which its settings are checked."""
    one: Task = study.tasks[task]
    other: Model = study.models[model]
    seed = study.presets[preset].seeds[0]
    settings = base_settings(study, preset, task, model, seed, extra)
    return Run("fit", task, model, seed, settings, (*one.include, *other.include))


def match(study: Study, preset: str, extra: Settings) -> Iterator[tuple[Pair, Sized]]:
    """Yields every pair of a preset with the size that was found for it; builds each, so it also checks.

    Raises:
        Mistake: The settings of a pair are wrong.
    """
    references: dict[str, int] = {}
    for task_name, _, model_name, model in pairs(study, preset):
        if task_name not in references:
            made = objects(first_run(study, preset, task_name, study.reference, extra))
            references[task_name] = trained_parameters(made.model)
        reference = references[task_name]
        made = objects(first_run(study, preset, task_name, model_name, extra))
        parameters = trained_parameters(made.model)
        settings: Settings = {}
        if model.sized and model_name != study.reference:
            rest = parameters - trained_parameters(made.model.network)
            size, found = matched(network_settings(made), model, reference - rest)
            settings, parameters = {f"{SIZE}.{model.sized}": size}, found + rest
        yield (task_name, model_name), Sized(settings, parameters, reference)


def matched(network: Mapping[str, Any], model: Model, parameters: int) -> tuple[int, int]:
    """The size at which a network comes nearest to a number of parameters, and how many it then has."""

    def resized(units: int) -> nn.Module:
        with torch.device("meta"):
            return make({**network, "init_args": {**network["init_args"], model.sized: units * model.step}})

    units = match_width(resized, parameters)
    return units * model.step, trained_parameters(resized(units))


def seconds_of(run: Run, repeats: int = 3) -> float:
    """Estimates the time of a fit from a few training steps; start, validations and tests come on top."""
    made = objects(run)
    data, module, trainer = made.datamodule, made.model, made.trainer
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    x, _ = data.on_after_batch_transfer(next(iter(loader)), 0)
    limit = trainer.limit_train_batches
    batches = min(len(loader), limit) if isinstance(limit, int) else int(len(loader) * limit)
    epochs = 1 if trainer.max_epochs is None else trainer.max_epochs  # −1 where steps alone are counted
    steps = min(steps for steps in (epochs * batches, trainer.max_steps) if steps >= 0)
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        prediction = module(x)
        prediction.float().square().mean().backward()
        times.append(time.perf_counter() - began)
    return steps * sorted(times[1:])[repeats // 2]
