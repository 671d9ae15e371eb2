"""A study as its file says it: tasks, models, measurements, tuning, and the claims that it settles."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Settings = dict[str, Any]
"""Dotted setting → value, as on the command line."""

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """What models are trained on and judged by.

    Args:
        label: As the page shows it.
        include: Configs merged for every run of the task, before the model's.
        metric: By which models are compared, as it is logged; a difference of two is ``a - b``.
        better: Whether a higher or a lower value is better.
        settings: Of every run of the task.
        seeded: Settings that get the run's seed, beside ``seed_everything``.
        floors: Predictor → its value of the metric: the trivial one first, the ideal one if it is known.
            A run that diverged counts as the first.
    """

    label: str
    include: list[str]
    metric: str
    better: Literal["higher", "lower"]
    settings: Settings = field(default_factory=dict)
    seeded: list[str] = field(default_factory=lambda: ["data.init_args.seed"])
    floors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A network with its recipe.

    Args:
        label: As the page shows it.
        include: Configs merged for every run of the model, after the task's.
        settings: Of every run of the model.
        tasks: Names of those it is trained on; all if empty.
        tuned: Whether the tuning grid is searched for it; otherwise its settings are those given.
        sized: Argument of the network, a width or a depth, by which it is matched in trained parameters to
            the study's reference; left alone if empty.
        step: What ``sized`` must be a multiple of.
        note: Settings that are ours and not published, and whatever else a reader must know.
    """

    label: str
    include: list[str]
    settings: Settings = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    tuned: bool = True
    sized: str = ""
    step: int = 1
    note: str = ""


@dataclass(frozen=True)
class Measurement:
    """Something that is measured without a fit: a function of the seed that returns model → metric → value.

    A value that is a list of pairs is drawn (exhibits of the kind ``points``). Several may share one call:
    they have the same ``run``, function and arguments, and the function returns name of the measurement →
    model → metric → value.

    Args:
        label: As the page shows it.
        function: Dotted path of ``function(seed, **arguments)``.
        metric: The one that stands first on the page.
        better: Whether a higher or a lower value is better.
        arguments: Of the function.
        floors: As in ``Task``.
        run: Name of the shared call; its own if empty.
    """

    label: str
    function: str
    metric: str
    better: Literal["higher", "lower"] = "lower"
    arguments: Settings = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)
    run: str = ""


@dataclass(frozen=True)
class Tuning:
    """The budget that every tuned model gets: one run a point of the grid, chosen on validation.

    Args:
        metric: By which a point is chosen, of the last epoch.
        better: Whether a higher or a lower value is better.
        learning_rates: Of the grid.
        schedules: Label → settings, of the grid.
        seed: Of all runs of the grid; none of the study's.
    """

    metric: str
    better: Literal["higher", "lower"]
    learning_rates: list[float]
    schedules: dict[str, Settings]
    seed: int = 1000


@dataclass(frozen=True)
class Preset:
    """How much of the study is run.

    Args:
        note: What was cut, as the page says it.
        seeds: Of every model.
        published_size: Whether sizes are those that the claims were made at.
        models: Names of those that are run; all if empty.
        tasks: Names of those that are run; all if empty.
        tasks_of: Name of a model → the tasks that it is trained on here, instead of all of its own.
        measurements: Names of those that are run; all if empty.
        settings: Of every run, over the task's and the model's.
        settings_of: Name of a task or a model → settings of its runs, over those of every run; the model's
            come last.
        tuning: Of every tuning run, over the others.
    """

    note: str
    seeds: list[int]
    published_size: bool = False
    models: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    tasks_of: dict[str, list[str]] = field(default_factory=dict)
    measurements: list[str] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    settings_of: dict[str, Settings] = field(default_factory=dict)
    tuning: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """One sentence that the study settles.

    With d the difference of ``metric`` between ``model`` and what it is compared with (of logarithms with the
    scale ``ratio``), it holds where d > margin (``greater``), d < −margin (``less``) or |d| < margin
    (``equal``).

    Args:
        claim: In the source's own numbers.
        source: Where it is made.
        task: A task or a measurement.
        models: Each must hold.
        kind: What is claimed of d.
        metric: As in ``Task``; the task's own if empty.
        against: Models compared with, each; paired by seed.
        value: What is compared with where ``against`` is empty.
        margin: ≥ 0, in units of the metric, or a factor's logarithm.
        scale: ``ratio`` for losses.
        published_size: Whether it was made at a certain size, so that smaller runs settle nothing about it.
        grid: Models with other values of what was not published. The claim fails only if it fails for all of
            them too; where it is empty and ``unpublished`` is not, a failure settles nothing.
        unpublished: Settings that are not published and are ours.
        condition: Under which a claim that fails would hold.
    """

    claim: str
    source: str
    task: str
    models: list[str]
    kind: Literal["greater", "less", "equal"]
    metric: str = ""
    against: list[str] = field(default_factory=list)
    value: float | None = None
    margin: float = 0.0
    scale: Literal["difference", "ratio"] = "difference"
    published_size: bool = True
    grid: list[str] = field(default_factory=list)
    unpublished: str = ""
    condition: str = ""


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure of the page, beside those that every study has.

    Args:
        title: Says what it shows.
        kind: ``table``: models × metrics, mean ± standard deviation. ``curves``: the first metric over
            training steps, one line a model. ``trend``: the first metric over ``x``. ``bars``: the first
            metric, a dot a seed. ``points``: pairs that a measurement
            returned, with the diagonal. ``scatter``: the second metric over the first, a dot a run.
        tasks: Tasks or measurements, one panel or block of rows each.
        metrics: As in ``Task``.
        models: All of the task if empty.
        x: For ``trend``: label of a line → model → its place on the axis.
        x_label: Of the axis.
        log: Whether the metric's axis is logarithmic.
        note: How to read it.
    """

    title: str
    kind: Literal["table", "curves", "trend", "bars", "scatter", "points"]
    tasks: list[str]
    metrics: list[str]
    models: list[str] = field(default_factory=list)
    x: dict[str, dict[str, float]] = field(default_factory=dict)
    x_label: str = ""
    log: bool = False
    note: str = ""


@dataclass(frozen=True)
class Study:
    """A study, checked.

    Args:
        name: The file's stem.
        title: Of the page.
        about: What is asked, in a paragraph.
        reference: The model that others are sized by.
        tasks, models, measurements, presets, claims, exhibits: By name.
        tuning: The grid; none where no model is tuned.
        network_candidate: Recipe of a user's network: its class path goes to ``network.class_path``.
        layer_candidate: Recipe of a user's layer: its class path goes to the argument ``layer_argument``.
        layer_argument: Of the network of ``layer_candidate``.
    """

    name: str
    title: str
    about: str
    reference: str
    tasks: Mapping[str, Task]
    models: Mapping[str, Model]
    measurements: Mapping[str, Measurement]
    presets: Mapping[str, Preset]
    claims: Mapping[str, Claim]
    exhibits: Mapping[str, Exhibit]
    tuning: Tuning | None = None
    network_candidate: Model | None = None
    layer_candidate: Model | None = None
    layer_argument: str = ""

    def claims_hash(self) -> str:
        """The SHA-256 of the claims, by which a page shows that no margin was moved after the fact."""
        return claims_hash(self.claims)

    def chosen(
        self, preset: str
    ) -> tuple[Mapping[str, Task], Mapping[str, Model], Mapping[str, Measurement]]:
        """Returns the tasks, models and measurements of a preset."""
        picked = self.presets[preset]
        return (
            pick(self.tasks, picked.tasks),
            pick(self.models, picked.models),
            pick(self.measurements, picked.measurements),
        )


def claims_hash(claims: Mapping[str, Claim]) -> str:
    """The SHA-256 of claims in canonical form."""
    plain = {name: dataclasses.asdict(claim) for name, claim in claims.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def pick(entries: Mapping[str, T], names: list[str]) -> Mapping[str, T]:
    """Returns the named entries, all where no name is given."""
    return {name: entries[name] for name in names} if names else entries
