"""What a finished run left behind, in a form in which two runs can be compared bit for bit."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch import Tensor

from app.callbacks import read_diagnostics

# Where and how long, not what.
ELSEWHERE = ("dirpath", "best_model_path", "best_k_models", "kth_best_model_path", "last_model_path", "logs")


def plain(value: Any) -> Any:
    """Replaces tensors by their bytes, and drops paths."""
    if isinstance(value, Tensor):
        return (str(value.dtype), tuple(value.shape), value.detach().cpu().contiguous().numpy().tobytes())
    if isinstance(value, dict):
        return {
            str(key): plain(item)
            for key, item in sorted(value.items(), key=lambda x: str(x[0]))
            if key not in ELSEWHERE
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def digest(value: Any) -> str:
    """A short hash."""
    return hashlib.sha256(repr(plain(value)).encode()).hexdigest()[:12]


def events(folder: Path) -> list[tuple[str, int, str]]:
    """All of TensorBoard's values, (tag, step, hash), in the order of tags and steps; not the layout."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if not value.tag.startswith("custom_scalars"):
                    content = value.SerializeToString()
                    found.append((value.tag, event.step, hashlib.sha256(content).hexdigest()[:12]))
    return sorted(found)


def fingerprint(folder: Path) -> dict[str, str]:
    """Hashes of everything that a run says, by what it is."""
    state = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    best = torch.load(folder / "checkpoints/best.ckpt", weights_only=True)
    table = read_diagnostics(folder)
    rows = sorted(zip(*(table[name].tolist() for name in table), strict=True), key=repr)
    return {
        "weights": digest(state["state_dict"]),
        "optimizer": digest(state["optimizer_states"]),
        "schedule": digest(state["lr_schedulers"]),
        "loops": digest(state["loops"]["fit_loop"]),
        "random": digest(state["resumption"]["ranks"]),
        "callbacks": digest(state["callbacks"]),
        "best": digest(best["state_dict"]),
        "metrics.csv": hashlib.sha256((folder / "metrics.csv").read_bytes()).hexdigest()[:12],
        "tensorboard": digest(events(folder)),
        "diagnostics": digest(rows),
        "files": digest(sorted(path.name for path in (folder / "checkpoints").iterdir())),
    }
