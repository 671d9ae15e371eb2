"""Signals that ask a run to end."""

import os
import signal
import subprocess
import threading
from types import FrameType
from typing import Any

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Trainer


class Interrupted(BaseException):
    """A signal has ended the run in good order.

    Attributes:
        signum: which signal.
        exit_code: 128 + signum, as shells have it; 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int, done: str = "") -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}{done}")
        self.signum = signum
        self.exit_code = 128 + signum


class Signals:
    """Remembers the first signal that asked the run to end; a Ctrl-C after it ends it on the spot.

    Attributes:
        pending: the signal to act upon, 0 for none.
    """

    def __init__(self) -> None:
        self.pending = 0
        self._requeue: int | None = None

    def listen(self, trainer: Trainer) -> None:
        """Takes SIGTERM, Ctrl-C and SLURM's signal from whoever handled them.

        Lightning's own handlers save or talk to other processes in the midst of a step.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        environment: Any = trainer._accelerator_connector.cluster_environment
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
            self._requeue = int(environment.requeue_signal or signal.SIGUSR1)
        for signum in {signal.SIGTERM, signal.SIGINT, self._requeue} - {None}:
            if signum is not None:
                signal.signal(signum, self._remember)

    def end_at_once(self) -> None:
        """Lets SIGTERM end what there is nothing to save of: Lightning's handler only takes a note."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, at_once)

    def requeue(self) -> None:
        """Asks SLURM to start the job again, if it was its signal."""
        job = os.environ.get("SLURM_ARRAY_JOB_ID")
        job = f"{job}_{os.environ['SLURM_ARRAY_TASK_ID']}" if job else os.environ.get("SLURM_JOB_ID")
        if self.pending == self._requeue and job:
            subprocess.run(["scontrol", "requeue", job], check=False)

    def _remember(self, signum: int, frame: FrameType | None) -> None:
        # SIGTERM often comes twice, to a process and to its group; who presses Ctrl-C again means it.
        if self.pending and signum == signal.SIGINT:
            raise Interrupted(signum, " twice: nothing was saved")
        self.pending = self.pending or signum


def at_once(signum: int, frame: FrameType | None) -> None:
    """A handler for when there is nothing to save."""
    raise Interrupted(signum)
