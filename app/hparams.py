"""What a run's settings are called in the dashboard, and which of them differ from the defaults."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from jsonargparse import Namespace

from app.sizes import SIZES

Scalar = bool | int | float | str

GROUPS = ("seed_everything", "model", "data", "trainer")
LEFT_OUT = {
    "trainer.default_root_dir",
    "data.root",
    *(size.target.replace(".init_args", "") for size in SIZES),
}
"""Where things lie says nothing about the run, and sizes are those of the data."""


def differing(chosen: Namespace, defaults: Namespace) -> dict[str, Scalar]:
    """Numbers, words and truth values among the settings that are not what they would be if not given.

    Classes are named without their module, and what they take is compared with their own signature's
    defaults: ``model.network: EDelta``, ``model.network.depth: 3``. Lists are left out.

    Args:
        chosen: the settings of a subcommand.
        defaults: the same with nothing given.
    """
    found: dict[str, Scalar] = {}
    for group in GROUPS:
        default = defaults.get(group)
        _compare(group, _plain(chosen.get(group)), _plain(default) if group == "trainer" else default, found)
    return {name: value for name, value in found.items() if name not in LEFT_OUT}


def _compare(name: str, value: Any, default: Any, found: dict[str, Scalar]) -> None:
    if isinstance(value, Mapping) and "class_path" in value:
        made = _class(str(value["class_path"]))
        if made is not default:
            found[name] = made.__name__ if isinstance(made, type) else str(value["class_path"])
        signature = inspect.signature(made).parameters if made is not None else {}
        for key, item in (value.get("init_args") or {}).items():
            own = signature[key].default if key in signature else inspect.Parameter.empty
            _compare(f"{name}.{key}", item, own, found)
    elif isinstance(value, Mapping):
        known = default if isinstance(default, Mapping) else {}
        for key, item in value.items():
            _compare(f"{name}.{key}", item, known.get(key), found)
    elif isinstance(value, (bool, int, float, str)) and value != default:
        found[name] = value


def _plain(value: Any) -> Any:
    return value.as_dict() if isinstance(value, Namespace) else value


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None
