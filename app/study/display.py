"""What a running study shows: its runs, where each stands, and the time that is left."""

import csv
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.study.plan import Study
from app.study.results import DONE
from app.study.scheduler import State
from app.study.session import Session


class Display:
    """Draws a study: a live table in a terminal, one line a finished run elsewhere.

    Args:
        study: Whose metrics are shown.
        console: Where to draw.
    """

    def __init__(self, study: Study, console: Console) -> None:
        self.study = study
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._told: set[str] = set()

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def __call__(self, session: Session) -> None:
        """Draws the present state."""
        states = session.scheduler.states
        for path, state in states.items():
            if state.ended and path not in self._told:
                self._told.add(path)
                if state.seconds or state.detail:
                    self._tell(session, path, state)
        if self.console.is_terminal:
            self.live.update(Group(self._table(session), self._summary(session)), refresh=True)

    def _tell(self, session: Session, path: str, state: State) -> None:
        if self.console.is_terminal and state.status == DONE:
            return
        ended = sum(one.ended for one in session.scheduler.states.values())
        metric, value = latest(session.folder / path, self._metric(state))
        shown = f"  {metric} {value}" if metric else ""
        detail = f"  {state.detail}" if state.detail else ""
        line = f"{ended}/{session.total}  {path}  {state.status}  {state.seconds:.0f} s{shown}{detail}"
        self.console.print(line, soft_wrap=True, highlight=False)

    def _metric(self, state: State) -> str:
        return self.study.tuning.metric if self.study.tuning is not None else ""

    def _table(self, session: Session) -> Table:
        table = Table(title=self.study.title, title_justify="left")
        for heading in ("run", "state", "epoch", "metric", "since"):
            table.add_column(heading, justify="left" if heading in ("run", "state") else "right")
        for path, state in session.scheduler.states.items():
            if state.status == "running":
                metric, value = latest(session.folder / path, self._metric(state))
                since = clock(time.time() - state.began)
                epoch = latest(session.folder / path, "epoch")[1]
                table.add_row(path, state.status, epoch, f"{metric} {value}", since)
        return table

    def _summary(self, session: Session) -> Text:
        states = session.scheduler.states.values()
        counts = {
            status: sum(state.status == status for state in states)
            for status in ("done", "diverged", "failed", "running")
        }
        left = session.total - sum(state.ended for state in states)
        line = f"{session.total - left} of {session.total} ended ({counts['diverged']} diverged, "
        line += f"{counts['failed']} failed), {counts['running']} running"
        took = [state.seconds for state in states if state.ended and state.seconds > 0]
        if took and left:
            at_once = max(1, min(session.scheduler.machine.slots(), counts["running"]))
            line += f", about {clock(left * sum(took) / len(took) / at_once)} left"
        return Text(line)


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def latest(folder: Path, metric: str) -> tuple[str, str]:
    """The last value of a metric in a run's ``metrics.csv``, as (name, text); empty where there is none."""
    try:
        with (folder / "metrics.csv").open(newline="") as file:
            values = [row[metric] for row in csv.DictReader(file) if row.get(metric)]
    except FileNotFoundError:
        return "", ""
    if not values:
        return "", ""
    return metric, values[-1][:7]
