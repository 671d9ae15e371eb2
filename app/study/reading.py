"""Reading a study's file: its parts with their types, then what one part says about another."""

import dataclasses
from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentParser, Namespace

from app.errors import Mistake, explain, hint
from app.study.plan import Claim, Exhibit, Measurement, Model, Preset, Settings, Study, Task, Tuning

T = TypeVar("T")

GROUPS: dict[str, type] = {
    "tasks": Task,
    "models": Model,
    "measurements": Measurement,
    "presets": Preset,
    "claims": Claim,
    "exhibits": Exhibit,
}
PARTS: dict[str, type] = {"tuning": Tuning, "network_candidate": Model, "layer_candidate": Model}
TEXTS = ("name", "title", "about", "reference", "layer_argument")


def load(path: Path) -> Study:
    """Reads and checks a study's file.

    Raises:
        Mistake: What is wrong, where, and what would be right.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Mistake(f"there is no study {path}") from None
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise Mistake(f"{path} is no study: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise Mistake(f"{path} must be a mapping of a study's parts, got {type(content).__name__}")
    study = restore({**content, "name": path.stem}, str(path))
    check(study, str(path))
    return study


def restore(content: Mapping[str, Any], where: str) -> Study:
    """Makes a study from its plain parts, each checked by itself.

    Raises:
        Mistake: What is wrong, where, and what would be right.
    """
    known = (*GROUPS, *PARTS, *TEXTS)
    for key in content:
        if key not in known:
            raise Mistake(f"{where}: a study has no part {key}{hint(str(key), known)}")
    for key in ("title", "reference", "models", "presets"):
        if not content.get(key):
            raise Mistake(f"{where}: {key} must be given")
    parts: dict[str, Any] = {}
    for key, kind in GROUPS.items():
        entries = content.get(key) or {}
        if not isinstance(entries, dict):
            raise Mistake(f"{where}: {key} must map names to entries, got {type(entries).__name__}")
        parts[key] = {str(name): parse(kind, one, f"{where}: {key}.{name}") for name, one in entries.items()}
    for key, kind in PARTS.items():
        if content.get(key) is not None:
            parts[key] = parse(kind, content[key], f"{where}: {key}")
    for key in TEXTS:
        value = content.get(key, "")
        if not isinstance(value, str):
            raise Mistake(f"{where}: {key} must be text, got {value!r}")
        parts[key] = " ".join(value.split())
    return Study(**parts)


FREE = ("settings", "settings_of", "arguments", "schedules", "tuning")
"""Parts of parts that hold settings."""


def all_mappings(value: Mapping[str, Any]) -> bool:
    """Whether every value is a mapping."""
    return all(isinstance(one, dict) for one in value.values())


def parse(kind: type[T], entry: object, where: str) -> T:
    """Makes a part from its mapping, with types checked."""
    if not isinstance(entry, dict):
        raise Mistake(f"{where} must be a mapping, got {entry!r}")
    # Settings are for another parser: this one would make objects of class paths among them.
    aside = {name: entry[name] for name in FREE if name in entry}
    for name, value in aside.items():
        if not isinstance(value, dict) or (name in ("schedules", "settings_of") and not all_mappings(value)):
            raise Mistake(f"{where}: {name} must be a mapping, got {value!r}")
    stubs: Settings = {name: {} for name in aside}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--part", type=kind)
    try:
        parsed: Namespace = parser.parse_object({"part": {**entry, **stubs}})
        made: T = replace(parser.instantiate(parsed).part, **aside)
    except ArgumentError as error:
        options = [option.name for option in dataclasses.fields(kind)]  # type: ignore[arg-type]
        message = explain(str(error), options)
        message = message.replace("part.init_args.", "").replace("part.", "").replace("--", "")
        raise Mistake(f"{where}: {message}") from error
    return made


def check(study: Study, where: str) -> None:
    """Checks what one part says about another.

    Raises:
        Mistake: The first thing that does not fit.
    """

    def known(owner: str, names: list[str], among: Mapping[str, Any], what: str) -> None:
        for name in names:
            if name not in among:
                raise Mistake(f"{where}: {owner} names no {what}: {name}{hint(name, among)}")

    both = {**study.tasks, **study.measurements}
    known("reference", [study.reference], study.models, "model")
    for name, model in study.models.items():
        known(f"models.{name}.tasks", model.tasks, study.tasks, "task")
        if model.step < 1:
            raise Mistake(f"{where}: models.{name}.step must be at least 1, got {model.step}")
        if model.tuned and study.tuning is None:
            raise Mistake(f"{where}: models.{name} is tuned, but the study has no tuning")
    calls: dict[str, tuple[str, Settings]] = {}
    for name, measurement in study.measurements.items():
        call = (measurement.function, measurement.arguments)
        if calls.setdefault(measurement.run or name, call) != call:
            raise Mistake(
                f"{where}: measurements.{name} must have the function and arguments of the others "
                f"with run {measurement.run}"
            )
    for name, preset in study.presets.items():
        known(f"presets.{name}.models", preset.models, study.models, "model")
        known(f"presets.{name}.tasks", preset.tasks, study.tasks, "task")
        known(
            f"presets.{name}.settings_of",
            [*preset.settings_of],
            {**study.tasks, **study.models},
            "task or model",
        )
        known(f"presets.{name}.tasks_of", [*preset.tasks_of], study.models, "model")
        for trained, tasks in preset.tasks_of.items():
            known(f"presets.{name}.tasks_of.{trained}", tasks, study.tasks, "task")
        known(f"presets.{name}.measurements", preset.measurements, study.measurements, "measurement")
        if not preset.seeds or len(set(preset.seeds)) < len(preset.seeds) or min(preset.seeds) < 0:
            raise Mistake(f"{where}: presets.{name}.seeds must be distinct and ≥ 0, got {preset.seeds}")
        if study.tuning is not None and study.tuning.seed in preset.seeds:
            raise Mistake(f"{where}: tuning.seed {study.tuning.seed} must be none of presets.{name}.seeds")
    for name, claim in study.claims.items():
        known(f"claims.{name}.task", [claim.task], both, "task or measurement")
        if claim.task in study.tasks:
            for part in ("models", "against", "grid"):
                known(f"claims.{name}.{part}", getattr(claim, part), study.models, "model")
        if not claim.models:
            raise Mistake(f"{where}: claims.{name}.models must name at least one")
        if bool(claim.against) == (claim.value is not None):
            raise Mistake(f"{where}: claims.{name} must have either against or value")
        if claim.margin < 0 or (claim.kind == "equal" and claim.margin == 0):
            raise Mistake(
                f"{where}: claims.{name}.margin must be at least 0, above it for equal, got {claim.margin}"
            )
    for name, exhibit in study.exhibits.items():
        known(f"exhibits.{name}.tasks", exhibit.tasks, both, "task or measurement")
        if not exhibit.metrics or (exhibit.kind == "scatter" and len(exhibit.metrics) < 2):
            raise Mistake(f"{where}: exhibits.{name}.metrics are too few for a {exhibit.kind}")
        if all(task in study.tasks for task in exhibit.tasks):
            known(f"exhibits.{name}.models", exhibit.models, study.models, "model")
            for line in exhibit.x.values():
                known(f"exhibits.{name}.x", list(line), study.models, "model")
