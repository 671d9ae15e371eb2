"""Which point of the tuning grid each model gets."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.study import work
from app.study.plan import Settings, Study, Tuning
from app.study.results import DONE, FAILED, MISSING
from app.study.runs import Pair, Point, Run, tuning_runs
from app.study.scheduler import last_line, note_path


def chosen(study: Study, preset: str, sizes: Mapping[Pair, Settings], folder: Path) -> dict[Pair, Point]:
    """Returns the best point of every pair of task and model whose whole grid has ended.

    A run that diverged or failed loses against any that did not; where all did, the first point stands.
    """
    if study.tuning is None:
        return {}
    grids: dict[Pair, list[tuple[Run, dict[str, Any]]]] = {}
    for run in tuning_runs(study, preset, sizes, {}):
        grids.setdefault((run.task, run.model), []).append((run, ended(run, folder)))
    found: dict[Pair, Point] = {}
    for pair, runs in grids.items():
        if all(result["status"] != MISSING for _, result in runs):
            best, _ = max(runs, key=lambda entry: score(study.tuning, entry[1]))  # type: ignore[arg-type]
            if best.point is not None:
                found[pair] = best.point
    return found


def ended(run: Run, folder: Path) -> dict[str, Any]:
    """How a run ended, with its last line if it failed; missing if it has not."""
    result = work.outcome(folder / run.path)
    if result is not None:
        return result
    note = work.read(note_path(folder, run))
    if note is None or not note.get("failed"):
        return {"status": MISSING}
    return {"status": FAILED, "detail": last_line(Path(note["logs"]), str(note["job"]))}


def score(tuning: Tuning, result: Mapping[str, Any]) -> float:
    """What a point reached, higher is better; −inf for one that has no value."""
    value = reached(tuning, result)
    if math.isnan(value):
        return -math.inf
    return value if tuning.better == "higher" else -value


def reached(tuning: Tuning, result: Mapping[str, Any]) -> float:
    """The metric of the last epoch, NaN for a run that did not end with one."""
    return work.value_of(result, tuning.metric) if result["status"] == DONE else math.nan
