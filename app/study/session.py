"""A study on disk: its folder, what it has committed itself to, and all of its runs to the end."""

import dataclasses
import fcntl
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.errors import Mistake
from app.study import work
from app.study.plan import Settings, Study
from app.study.results import FAILED
from app.study.runs import Pair, Run, final_runs, tuned, tuning_runs
from app.study.scheduler import Machine, Scheduler
from app.study.sizing import Sized
from app.study.tuning import chosen

FILE = "study.json"


class Session:
    """One call of a study in its folder. It goes on where an earlier one stopped.

    Args:
        study: What is asked.
        preset: How much of it.
        folder: Of the study.
        sizes: Of every pair of task and model.
        extra: Settings of the machine, over all others.
        command: That repeats the study.
        candidate: Name of the outside model, if one was put in.
        machine: Where runs go.

    Raises:
        Mistake: The folder is another study's, its claims have changed, a finished run was made with other
            settings, or another process works in it.
    """

    def __init__(
        self,
        study: Study,
        preset: str,
        folder: Path,
        sizes: Mapping[Pair, Sized],
        extra: Settings,
        command: str,
        candidate: str = "",
        machine: Machine | None = None,
    ) -> None:
        self.study = study
        self.preset = preset
        self.folder = folder
        self.sizes = {pair: sized.settings for pair, sized in sizes.items()}
        self.extra = extra
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake(
                f"another process runs the study in {folder}; wait for it, or name another --output"
            ) from None
        self._commit(command, candidate, sizes)
        self.scheduler = Scheduler(folder, machine or Machine())
        self.total = len(self.tuning) + self._finals_in_all()
        self.grow()

    @property
    def tuning(self) -> list[Run]:
        """The runs of the grid."""
        return tuning_runs(self.study, self.preset, self.sizes, self.extra)

    def _finals_in_all(self) -> int:
        seeds = len(self.study.presets[self.preset].seeds)
        known = len(final_runs(self.study, self.preset, self.sizes, self.extra, {}))
        return known + seeds * len(tuned(self.study, self.preset))

    def _commit(self, command: str, candidate: str, sizes: Mapping[Pair, Sized]) -> None:
        """Writes down what was asked when the study began; later calls must ask the same."""
        path = self.folder / FILE
        earlier = work.read(path)
        digest = self.study.claims_hash()
        plain_sizes = {"/".join(pair): dataclasses.asdict(sized) for pair, sized in sizes.items()}
        if earlier is None:
            content = {
                "claims_hash": digest,
                "preset": self.preset,
                "candidate": candidate,
                "command": command,
                "study": as_plain(self.study),
                "sizes": plain_sizes,
            }
            work.write(path, content)
            return
        if earlier["study"]["name"] != self.study.name or earlier["preset"] != self.preset:
            holds = f"{earlier['study']['name']} at preset {earlier['preset']}"
            raise Mistake(f"{self.folder} holds {holds}; name another --output")
        if earlier["claims_hash"] != digest:
            raise Mistake(
                f"the claims of {self.study.name} have changed since the study in {self.folder} began "
                f"({earlier['claims_hash'][:12]} is now {digest[:12]}): start anew with another --output"
            )
        grown = {**earlier["sizes"], **plain_sizes}  # a grid may grow, as long as its claims stay
        work.write(path, {**earlier, "study": as_plain(self.study), "sizes": grown})

    def grow(self) -> None:
        """Takes on every run whose settings are known by now."""
        points = chosen(self.study, self.preset, self.sizes, self.folder)
        runs = [*self.tuning, *final_runs(self.study, self.preset, self.sizes, self.extra, points)]
        fresh = [run for run in runs if run.path not in self.scheduler.states]
        for run in fresh:
            self._agree(run)
        self.scheduler.add(fresh)

    def _agree(self, run: Run) -> None:
        """Checks that what a run left is of the settings that it has now."""
        folder = self.folder / run.path
        plan = self.folder / "jobs" / run.path / work.PLAN
        content = {"settings": run.settings, "include": list(run.include), "function": run.function}
        earlier = work.read(plan)
        if earlier is not None and earlier != json.loads(json.dumps(content)) and folder.exists():
            names = sorted(
                key
                for key in {*earlier["settings"], *run.settings}
                if earlier["settings"].get(key) != json.loads(json.dumps(run.settings)).get(key)
            )
            what = names[0] if names else "its configs"
            raise Mistake(
                f"{folder} was made with another {what}: remove it to run it again, or name another --output"
            )
        plan.parent.mkdir(parents=True, exist_ok=True)
        work.write(plan, content)

    def run(self, draw: Callable[["Session"], None]) -> bool:
        """Runs all to the end.

        Args:
            draw: Called after each look at the runs.

        Returns:
            Whether all ended well; one that diverged did.
        """
        ended = -1

        def looked() -> None:
            nonlocal ended
            now = sum(state.ended for state in self.scheduler.states.values())
            if now != ended:  # only then can a grid have ended
                ended = now
                self.grow()
            draw(self)

        self.scheduler.drain(looked)
        return all(state.status != FAILED for state in self.scheduler.states.values())


def as_plain(study: Study) -> dict[str, Any]:
    """A study as JSON."""
    plain: dict[str, Any] = dataclasses.asdict(study)
    return plain


def default_folder(study: Study, preset: str, candidate: str) -> Path:
    """Where a study goes if no folder is named."""
    return Path("runs") / "studies" / "-".join(filter(None, (study.name, preset, candidate)))
