"""A study that takes seconds, and what its runs call; imported by their processes too."""

import os
import time
from pathlib import Path

import torch
import yaml
from torch import Tensor, nn

MODEL = {"include": ["model/relu_shallow"], "settings": {"model.init_args.network.init_args.depth": 1}}
STUDY = {
    "title": "A small study",
    "reference": "plain",
    "tasks": {
        "digits": {
            "label": "Digits",
            "include": ["data/digits"],
            "metric": "test/acc",
            "better": "higher",
            "floors": {"trivial": 0.1},
        }
    },
    "tuning": {
        "metric": "val/acc",
        "better": "higher",
        "learning_rates": [1e-4, 1e-3],
        "schedules": {"constant": {"model.init_args.schedule": {"class_path": "app.modules.Constant"}}},
    },
    "models": {"plain": {**MODEL, "label": "plain", "tuned": False}},
    "measurements": {
        "slow": {"label": "slow", "function": "small.slow", "metric": "value", "arguments": {"seconds": 2.0}}
    },
    "layer_candidate": {"label": "candidate", "include": ["model/layered"], "sized": "width"},
    "layer_argument": "layer",
    "network_candidate": {"label": "candidate", "include": ["model/classification"], "sized": "width"},
    "presets": {
        "quick": {
            "note": "small",
            "seeds": [1, 2, 3],
            "settings": {
                "trainer.max_epochs": 1,
                "trainer.accelerator": "cpu",
                "model.init_args.network.init_args.width": 16,
                "model.init_args.network.init_args.depth": 1,
            },
        }
    },
    "claims": {
        "better_than_chance": {
            "claim": "It learns.",
            "source": "here",
            "task": "digits",
            "models": ["plain"],
            "kind": "greater",
            "value": 0.1,
            "published_size": False,
        }
    },
}
"""Plain data, to be changed in copies."""


def write(folder: Path, content: dict) -> Path:
    """Writes a study into a folder."""
    path = folder / "small_study.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def calls(folder: Path) -> list[str]:
    """Every start and end of a slow run, in order."""
    path = folder / "calls"
    return path.read_text().split() if path.is_file() else []


def _note(event: str) -> None:
    with Path("calls").open("a") as file:
        file.write(f"{event}\n")


def slow(seed: int, seconds: float) -> dict[str, dict[str, float]]:
    """Takes its time."""
    _note(f"began-{seed}")
    time.sleep(seconds)
    _note(f"ended-{seed}")
    return {"sleeper": {"value": float(seed)}}


def broken(seed: int) -> dict[str, dict[str, float]]:
    """Fails for the second seed."""
    _note(f"began-{seed}")
    if seed == 2:
        raise RuntimeError("the valve is stuck")
    return {"sleeper": {"value": float(os.getpid() > 0)}}


class MyLayer(nn.Module):
    """A user's layer."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class MyNetwork(nn.Module):
    """A user's network."""

    def __init__(self, input_shape: list[int], num_outputs: int, width: int = 8, depth: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(input_shape[-1] * input_shape[-2], width), nn.Linear(width, num_outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
