"""What ``python -m app`` says alone: what to type next, and what there is."""

import textwrap
from collections.abc import Collection, Sequence

from app.configs import shipped

WELCOME = """\
Train, watch and judge geometric networks against their baselines.

  python -m app fit --config z_plane_digits        train 100 phasor layers on digits, no download
  python -m app fit --config z_plane_digits --print_config
                                                   see every setting, and override any of them
  python -m app validate --config z_plane_digits --ckpt_path best
  python -m app test     --config z_plane_digits --ckpt_path best
  python -m app predict  --config z_plane_digits --ckpt_path best
  python -m app dashboard                          watch it
  python -m app study z_plane --preset=quick       settle claims by a grid of runs, and write a page
  python -m app report runs/NAME/version_0 …       a page that compares any runs

{names}

Any model with any data: python -m app fit --config model/tanh --config data/digits
Options of a command: python -m app fit --help. Add --debug to see where an error came from.
"""
FAMILIES = ("z_plane", "sigma_pi", "edelta", "published")
RIVALLED = ("edelta", "published")
"""Families with an experiment for a task and each of its rivals."""


def welcome() -> str:
    """Returns what to type next."""
    names = shipped()
    experiments = [name for name in names if "/" not in name]
    lines: list[tuple[str, Collection[str]]] = []
    for family in FAMILIES:
        rest = [name.removeprefix(f"{family}_") for name in experiments if name.startswith(f"{family}_")]
        if family not in RIVALLED:
            lines.append((f"{family}_…", rest))
            continue
        tasks = {task_of(name, names) for name in rest}
        rivals = {name.removeprefix(task_of(name, names)).strip("_") for name in rest} - {""}
        lines += [(f"{family}_TASK{'[_MODEL]' if tasks & set(rest) else '_MODEL'}", []), ("  TASK", tasks)]
        lines.append(("  MODEL", rivals))
    lines.append(("model/…", [name.removeprefix("model/") for name in names if name.startswith("model/")]))
    lines.append(("data/…", [name.removeprefix("data/") for name in names if name.startswith("data/")]))
    shown = [row(label, sorted(entries)) for label, entries in lines]
    return WELCOME.format(names="\n".join(["What --config knows:", *shown]))


def task_of(experiment: str, names: Collection[str]) -> str:
    """The longest name of shipped data that an experiment's name, without its family, begins with."""
    tasks = [name.removeprefix("data/") for name in names if name.startswith("data/")]
    return max((task for task in tasks if f"{experiment}_".startswith(f"{task}_")), key=len, default="")


def row(label: str, entries: Sequence[str], start: int = 27, width: int = 100) -> str:
    """A label, and entries wrapped beside it."""
    text = f"  {label}".ljust(start) + ", ".join(entries)
    return textwrap.fill(text, width, subsequent_indent=" " * start, break_on_hyphens=False)
