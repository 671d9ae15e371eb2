"""``python -m app study``: runs a grid of experiments that settles claims, and writes its page."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.progress import track
from rich.table import Table

from app import commands, configs
from app.errors import Mistake, hint
from app.study import plan, reading
from app.study.candidate import put_in
from app.study.display import Display, clock
from app.study.runs import Pair, final_runs, pairs, tuned, tuning_runs
from app.study.scheduler import Machine
from app.study.session import Session, default_folder
from app.study.sizing import Sized, first_run, match, seconds_of


def parser() -> ArgumentParser:
    """The command's options."""
    made = commands.parser(
        "study",
        "Run a study: a grid of experiments that settles claims. Call it again to go on.",
        "z_plane --preset=cpu --dry_run",
    )
    made.add_argument("study", type=str, help="A study file, or the name of a shipped one.")
    made.add_argument("--preset", type=str, default="quick", help="How much of it is run.")
    made.add_argument(
        "--output", type=Path | None, help="Its folder (default: runs/studies/<study>-<preset>)."
    )
    made.add_argument("--candidate", type=str | None, help="Dotted path of your network or layer to put in.")
    made.add_argument(
        "--dry_run", type=bool, default=False, nargs="?", const=True, help="Show what would run."
    )
    made.add_argument(
        "--set",
        type=dict[str, Any],
        default={},
        help='Settings of every run, as {"data.init_args.root": "data"}.',
    )
    made.add_argument("--cluster", type=Literal["local", "slurm"], default="local", help="Where runs go.")
    made.add_argument("--workers", type=int, default=0, help="Runs at once; 0 for as many as fit.")
    made.add_argument("--threads", type=int, default=1, help="Of each run.")
    made.add_argument("--memory_gb", type=float, default=2.0, help="That a run is expected to need.")
    made.add_argument(
        "--slurm", type=dict[str, Any], default={}, help='As {"partition": "gpu", "time": 120}.'
    )
    return made


def find(name: str) -> Path:
    """Returns a study's file.

    Raises:
        Mistake: There is none of that name.
    """
    if Path(name).is_file():
        return Path(name)
    known = {path.stem: path for path in sorted((configs.SHIPPED / "studies").glob("*.yaml"))}
    stem = Path(name).stem
    if stem not in known:
        near = hint(stem, known) or f"; shipped are {', '.join(known)}"
        raise Mistake(f"there is no study {name}{near}")
    return known[stem]


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Returns:
        0 if every run ended well, 1 if one failed.

    Raises:
        Mistake: What is wrong with what was asked for.
    """
    options = commands.parse(parser(), arguments)
    study = reading.load(find(options.study))
    preset: str = options.preset
    if preset not in study.presets:
        raise Mistake(f"{study.name} has no preset {preset}; it has {', '.join(study.presets)}")
    candidate = ""
    if options.candidate:
        sys.path.insert(0, str(Path.cwd()))  # where a user's own module lies
        study, candidate = put_in(study, options.candidate)
    for name in ("workers", "threads"):
        if options[name] < (name == "threads"):
            raise Mistake(f"{name} must be at least {int(name == 'threads')}, got {options[name]}")
    console = Console()
    extra: dict[str, Any] = {"trainer.enable_progress_bar": False, "trainer.devices": 1, **options.set}
    count = sum(1 for _ in pairs(study, preset))
    sizes: dict[Pair, Sized] = {}
    sized = match(study, preset, extra)
    for pair, found in track(
        sized, "checking and sizing every model", count, console=console, transient=True
    ):
        sizes[pair] = found
    if options.dry_run:
        show_plan(study, preset, sizes, extra, console, Machine(workers=options.workers))
        return 0
    machine = Machine(options.cluster, options.workers, options.threads, options.memory_gb, options.slurm)
    folder = options.output or default_folder(study, preset, candidate)
    command = "python -m app study " + shlex.join(arguments)
    session = Session(study, preset, folder, sizes, extra, command, candidate, machine)
    try:
        with Display(study, console) as display:
            well = session.run(display)
    except KeyboardInterrupt:
        console.print("stopping the runs; the same command goes on where they were")
        session.scheduler.stop()
        raise
    from app.study.collect import collect
    from app.study.page import write

    page = write(collect(folder), folder / "report")
    console.print(f"page  {page}", soft_wrap=True)
    return 0 if well else 1


def show_plan(
    study: plan.Study,
    preset: str,
    sizes: Mapping[Pair, Sized],
    extra: plan.Settings,
    console: Console,
    machine: Machine,
) -> None:
    """Prints runs, parameters and estimated time of a study."""
    chosen = {pair: sized.settings for pair, sized in sizes.items()}
    grid = tuning_runs(study, preset, chosen, extra)
    seeds = study.presets[preset].seeds
    table = Table(title=f"{study.title}, preset {preset}", title_justify="left")
    for heading in (
        "task",
        "model",
        "parameters",
        "of reference",
        "matched by",
        "tuning runs",
        "runs",
        "each",
    ):
        table.add_column(heading, justify="left" if heading in ("task", "model", "matched by") else "right")
    total = 0.0
    pairs_of = list(pairs(study, preset))
    for task, _, model, _ in track(pairs_of, "timing a few steps of each", console=console, transient=True):
        sized = sizes[task, model]
        run = first_run(study, preset, task, model, {**extra, **sized.settings})
        each = seconds_of(run)
        tunings = sum(one.task == task and one.model == model for one in grid)
        total += each * (tunings + len(seeds))
        by = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in sized.settings.items())
        share = f"{sized.parameters / sized.reference:.1%}"
        row = (task, model, f"{sized.parameters:,}", share, by, str(tunings), str(len(seeds)), clock(each))
        table.add_row(*row)
    console.print(table)
    measurements = len(final_runs(study, preset, chosen, extra, {})) - len(seeds) * (
        len(pairs_of) - len(tuned(study, preset))
    )
    runs = len(grid) + len(seeds) * len(pairs_of) + measurements
    slots = machine.slots()
    console.print(
        f"{runs} runs ({len(grid)} of tuning, {measurements} measurements), {slots} at once: about "
        f"{clock(total / slots)} of training steps; starts, validations and tests come on top",
        soft_wrap=True,
    )
