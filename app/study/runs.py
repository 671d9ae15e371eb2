"""The runs of a study: which there are, and the command line of each."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.study.plan import Model, Settings, Study, Task, Tuning

Pair = tuple[str, str]
"""A task and a model."""

LEARNING_RATE = "model.init_args.optimizer.init_args.lr"
SIZE = "model.init_args.network.init_args"


@dataclass(frozen=True)
class Point:
    """A point of the tuning grid."""

    learning_rate: float
    schedule: str

    @property
    def slug(self) -> str:
        """As part of a folder's name."""
        return f"lr_{self.learning_rate:g}_{self.schedule}"

    def settings(self, tuning: Tuning) -> Settings:
        """As settings of a run."""
        return {LEARNING_RATE: self.learning_rate, **tuning.schedules[self.schedule]}


@dataclass(frozen=True)
class Run:
    """One process with one folder.

    Args:
        kind: ``tune`` looks at validation alone; ``fit`` opens the test data, once; ``measure`` calls a
            function.
        task: Its name, or that of the measurement's call.
        model: Its name; empty for a measurement, which returns values for several.
        seed: Of weights, data and order.
        settings: Of the fit, or the function's arguments.
        include: Configs of the fit, merged in this order.
        function: Of a measurement.
        point: What a tuning run tries.
    """

    kind: Literal["tune", "fit", "measure"]
    task: str
    model: str
    seed: int
    settings: Settings
    include: tuple[str, ...] = ()
    function: str = ""
    point: Point | None = None

    @property
    def path(self) -> str:
        """Its folder in the study's, which is also its name."""
        if self.kind == "tune" and self.point is not None:
            return f"tuning/{self.task}/{self.model}/{self.point.slug}"
        where = f"{self.task}/{self.model}" if self.model else self.task
        return f"{where}/seed_{self.seed}"

    @property
    def arguments(self) -> list[str]:
        """The command line of a fit, without the program's name."""
        configs = [f"--config={name}" for name in self.include]
        return ["fit", *configs, *(f"--{key}={as_text(value)}" for key, value in self.settings.items())]


def as_text(value: Any) -> str:
    """A setting's value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def grid(tuning: Tuning) -> list[Point]:
    """All points of a grid."""
    return [Point(rate, schedule) for rate in tuning.learning_rates for schedule in tuning.schedules]


def pairs(study: Study, preset: str) -> Iterator[tuple[str, Task, str, Model]]:
    """Yields every task with every model that is trained on it."""
    tasks, models, _ = study.chosen(preset)
    fewer = study.presets[preset].tasks_of
    for task_name, task in tasks.items():
        for model_name, model in models.items():
            among = fewer.get(model_name, model.tasks)
            if not among or task_name in among:
                yield task_name, task, model_name, model


def tuned(study: Study, preset: str) -> list[Pair]:
    """Returns the pairs of task and model whose settings are searched for."""
    return [(task, model) for task, _, model, recipe in pairs(study, preset) if recipe.tuned]


def base_settings(study: Study, preset: str, task: str, model: str, seed: int, extra: Settings) -> Settings:
    """The settings that every run of a task and a model has: the preset's come over theirs."""
    cut = study.presets[preset]
    return {
        "seed_everything": seed,
        **dict.fromkeys(study.tasks[task].seeded, seed),
        **study.tasks[task].settings,
        **study.models[model].settings,
        **cut.settings,
        **cut.settings_of.get(task, {}),
        **cut.settings_of.get(model, {}),
        **extra,
    }


def tuning_runs(study: Study, preset: str, sizes: Mapping[Pair, Settings], extra: Settings) -> list[Run]:
    """Returns one run a point of the grid for every tuned pair.

    Args:
        study: What is asked.
        preset: How much of it.
        sizes: What matched the pairs in size.
        extra: Settings of the machine, over all others.
    """
    if (tuning := study.tuning) is None:
        return []
    found = []
    for task_name, task, model_name, model in pairs(study, preset):
        if not model.tuned:
            continue
        base = base_settings(study, preset, task_name, model_name, tuning.seed, extra)
        for point in grid(tuning):
            settings = {**base, **sizes.get((task_name, model_name), {})}
            settings |= {**point.settings(tuning), **study.presets[preset].tuning}
            include = (*task.include, *model.include)
            found.append(Run("tune", task_name, model_name, tuning.seed, settings, include, point=point))
    return found


def final_runs(
    study: Study,
    preset: str,
    sizes: Mapping[Pair, Settings],
    extra: Settings,
    chosen: Mapping[Pair, Point],
) -> list[Run]:
    """Returns the runs of every seed whose settings are known, measurements first.

    Args:
        study: What is asked.
        preset: How much of it.
        sizes: What matched the pairs in size.
        extra: Settings of the machine, over all others.
        chosen: What the tuning chose so far; tuned pairs that it lacks are left out.
    """
    seeds = study.presets[preset].seeds
    _, _, measurements = study.chosen(preset)
    calls = {measurement.run or name: measurement for name, measurement in measurements.items()}
    found = [
        Run("measure", name, "", seed, measurement.arguments, function=measurement.function)
        for seed in seeds
        for name, measurement in calls.items()
    ]
    for seed in seeds:  # the first seed of all models, then the second: a page is worth reading early
        for task_name, task, model_name, model in pairs(study, preset):
            pair = (task_name, model_name)
            settings = base_settings(study, preset, task_name, model_name, seed, extra) | sizes.get(pair, {})
            if model.tuned:
                if pair not in chosen or study.tuning is None:
                    continue
                settings |= chosen[pair].settings(study.tuning)
            found.append(Run("fit", *pair, seed, settings, (*task.include, *model.include)))
    return found
