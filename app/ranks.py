"""One message when one of several processes of a run dies, whichever it was."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from lightning.pytorch.utilities import rank_zero_only

NOTES = "APP_RANK_NOTES"
"""Names the folder in which processes leave the reason why they end, for the first one to tell."""

STARTER = "APP_RANK_STARTER"
"""Names the first process to those that it starts."""

GRACE = 3.0  # seconds for the others to say why, once a connection broke


def rank() -> int:
    """This process's number among all of the run."""
    return int(rank_zero_only.rank or 0)  # type: ignore[attr-defined]  # set when Lightning is imported


class Watch:
    """Ends a run whose other processes, which this one starts, die; and them, when this one fails.

    Lightning looks every five seconds and then kills the first process too, without a word.

    Args:
        trainer: Of the run.
    """

    def __init__(self, trainer: Trainer) -> None:
        launcher: Any = trainer.strategy.launcher
        starts = isinstance(launcher, _SubprocessScriptLauncher) and launcher.num_processes > 1
        self._launcher = launcher
        self._first = starts and not launcher.cluster_environment.creates_processes_externally
        self._over = threading.Event()

    def __enter__(self) -> "Watch":
        look = None
        if self._first:
            os.environ[NOTES] = tempfile.mkdtemp(prefix="ranks-")
            os.environ[STARTER] = str(os.getpid())
            look = self._look_down
        elif starter() is not None:
            look = self._look_up
        if look is not None:
            threading.Thread(target=look, daemon=True, name="rank-watch").start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._first:
            self._over.set()
            return
        died = self.died(GRACE) if is_broken(error) else ""
        self._over.set()
        if error is not None:
            self._kill()
        shutil.rmtree(os.environ.pop(NOTES), ignore_errors=True)
        del os.environ[STARTER]
        if died:
            raise RankDied(died) from error

    def died(self, patience: float = 0.0) -> str:
        """Says which process has died and why, nothing if none has."""
        deadline = time.monotonic() + patience
        while True:
            for number, process in enumerate(self._launcher.procs, start=1):
                if code := process.poll():
                    return f"rank {number} {cause(number, code)}"
            if time.monotonic() >= deadline:
                return ""
            time.sleep(0.1)

    def _look_down(self) -> None:
        # A broken connection wakes the main thread, unless it waits for a device: then it is not waited for.
        while not self._over.wait(0.5):
            if self.died() and not self._over.wait(GRACE):
                print(f"error: {RankDied(self.died())}", file=sys.stderr, flush=True)
                self._kill()
                os._exit(1)

    def _look_up(self) -> None:
        while not self._over.wait(0.5):
            if os.getppid() != starter():
                tell("the connection to it is lost")
                os._exit(1)

    def _kill(self) -> None:
        for process in self._launcher.procs:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


class RankDied(RuntimeError):
    """Another process of the run has died; the message says which and why."""

    def __init__(self, died: str) -> None:
        super().__init__(f"{died}; the last checkpoint is kept")


def starter() -> int | None:
    """The process that has started this one as another of its run."""
    pid = os.environ.get(STARTER)
    return None if pid is None or int(pid) == os.getpid() else int(pid)


def is_broken(error: BaseException | None) -> bool:
    """Whether an error only says that another process no longer answers."""
    words = ("peer", "connection", "gloo", "nccl", "tcpstore", "broken pipe", "timed out")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def cause(number: int, code: int) -> str:
    """Says why a process ended with ``code``: its own words, if it left any."""
    note = Path(os.environ.get(NOTES, "")) / str(number)
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"failed: {note.read_text()}" if note.is_file() else f"ended with code {code}"


def tell(message: str) -> None:
    """Prints an error, or leaves it to the process that started this one, which tells it once."""
    with _telling:
        where = f"rank {rank()}: " if rank() else ""
        first = starter()
        if first is None:
            print(f"error: {where}{message}", file=sys.stderr, flush=True)
        elif os.getppid() == first:
            with contextlib.suppress(OSError):  # it has ended in the meantime, and has told why
                (Path(os.environ[NOTES]) / str(rank())).write_text(message)
        elif rank() == 1 and not _told.is_set():
            _told.set()
            print(f"error: rank 0 has died; {where}{message}", file=sys.stderr, flush=True)


_telling = threading.Lock()
_told = threading.Event()
