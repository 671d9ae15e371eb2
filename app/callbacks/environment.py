"""Where and with what a run was made."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

import app
from app.callbacks.records import run_folder

PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "torchmetrics",
    "tensorboard",
    "jsonargparse",
    "numpy",
    "scikit-learn",
)


class Environment(Callback):
    """Writes ``environment.json`` into the run's folder: what it takes to make the run again.

    Logged:
        - nothing; the file has ``versions`` (Python, PyTorch, Lightning, this package …), ``git`` (commit of
          the code and whether the checkout differs from it; ``null`` outside of a checkout), ``seeds``,
          ``hardware`` (no names of machines) and ``command``.

    Example:
        >>> trainer = Trainer(callbacks=[Environment()])  # doctest: +SKIP
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Resolves the folder on every rank; rank 0 writes."""
        folder = run_folder(trainer)
        if folder is None or not trainer.is_global_zero:
            return
        path = Path(folder) / "environment.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_text(json.dumps(_describe(trainer), indent=2) + "\n", encoding="utf-8")
        os.replace(draft, path)


def _describe(trainer: Trainer) -> dict[str, Any]:
    seed = os.environ.get("PL_GLOBAL_SEED")
    data_seed = vars(trainer.datamodule).get("seed") if trainer.datamodule is not None else None  # type: ignore[attr-defined]
    return {
        "versions": {
            "python": platform.python_version(),
            "app": app.__version__,
            **{name: _version(name) for name in PACKAGES},
        },
        "git": _git(Path(app.__file__).parent),
        "seeds": {
            "global": int(seed) if seed else None,
            "data": data_seed if isinstance(data_seed, int) else None,
        },
        "hardware": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "ranks": trainer.world_size,
        },
        "command": sys.argv,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that tracks the code; an installed copy inside some other checkout has none."""

    def ask(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", "__init__.py")
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
