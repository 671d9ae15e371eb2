"""What the process of one run does: the fit or the measurement, and the file that says how it ended."""

import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from app.callbacks import NonFiniteError
from app.cli import CLI
from app.errors import Mistake, RunFailed, hint, members
from app.networks.matching import trained_parameters
from app.quiet import silence
from app.study.results import DIVERGED, DONE
from app.study.runs import Run

RESULT = "result.json"
PLAN = "run.json"


class Trial(CLI):
    """A fit of a study.

    Args:
        arguments: The command line.
        folder: Of the run.
        opens_test: Whether the test data are looked at: once, for the last weights and for the best.
    """

    def __init__(self, arguments: list[str], folder: Path, opens_test: bool) -> None:
        self.opens_test = opens_test
        self.outcome: dict[str, Any] = {}
        self.began = time.perf_counter()
        super().__init__(arguments, folder=folder)

    def before_fit(self) -> None:
        """Starts the clock."""
        self.began = time.perf_counter()

    def after_fit(self) -> None:
        """Notes what the last epoch reached, then tests."""
        trainer = self.trainer
        if trainer.interrupted:
            raise KeyboardInterrupt
        seconds = time.perf_counter() - self.began
        metrics = as_numbers(trainer.callback_metrics)
        steps, parameters = trainer.global_step, trained_parameters(self.model)
        if self.opens_test:
            (last,) = trainer.test(self.model, datamodule=self.datamodule, verbose=False)
            metrics |= last
            kept = trainer.checkpoint_callback
            best = kept.best_model_path if isinstance(kept, ModelCheckpoint) else ""
            if best:
                (tested,) = trainer.test(
                    self.model, datamodule=self.datamodule, ckpt_path=best, verbose=False
                )
                metrics |= {f"best/{name}": value for name, value in tested.items()}
        self.outcome = {
            "status": DONE,
            "metrics": metrics,
            "parameters": parameters,
            "steps": steps,
            "seconds": seconds,
        }


def execute(run: Run, folder: Path) -> None:
    """Does a run in its folder, goes on where an interrupted one was, and leaves ``result.json``.

    A fit whose numbers stop being finite has an outcome like any other: it diverged.
    """
    silence()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    folder.mkdir(parents=True, exist_ok=True)
    if run.kind == "measure":
        write(folder / RESULT, {"status": DONE, **measure(run)})
        return
    arguments = list(run.arguments)
    last = folder / "checkpoints" / "last.ckpt"
    if last.is_file():
        arguments.append(f"--ckpt_path={last}")
    try:
        trial = Trial(arguments, folder, opens_test=run.kind == "fit")
    except RunFailed as error:
        if not isinstance(error.__cause__, NonFiniteError):
            raise
        write(folder / RESULT, {"status": DIVERGED, "detail": str(error), "metrics": {}})
        return
    write(folder / RESULT, trial.outcome)


def measure(run: Run) -> dict[str, Any]:
    """Calls the function of a measurement."""
    began = time.perf_counter()
    torch.manual_seed(run.seed)
    values: Mapping[str, Any] = locate(run.function)(run.seed, **run.settings)
    return {"values": values, "seconds": time.perf_counter() - began}


def locate(path: str) -> Callable[..., Any]:
    """Imports what a dotted path names.

    Raises:
        Mistake: There is no such thing.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise Mistake(f"{path} must be a dotted path such as my_package.MyLayer")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Mistake(f"there is no module {error.name}, looked for as a part of {path}") from error
    if not hasattr(imported, name):
        raise Mistake(f"there is no {path}{hint(name, members(module))}")
    found: Callable[..., Any] = getattr(imported, name)
    return found


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as numbers; what is not finite stays, as JSON of Python reads it back."""
    return {name: float(value) for name, value in metrics.items()}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON whole or not at all."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1))
    os.replace(draft, path)


def read(path: Path) -> dict[str, Any] | None:
    """Reads such a file; ``None`` where there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return content


def outcome(folder: Path) -> dict[str, Any] | None:
    """Returns how the run of a folder ended; ``None`` where it has not."""
    return read(folder / RESULT)


def value_of(result: Mapping[str, Any], metric: str) -> float:
    """A metric of a run's outcome, NaN where it has none."""
    return float(result.get("metrics", {}).get(metric, math.nan))
