"""Runs through submitit: a process and a folder each, as many at once as fit, adopted when they live on."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
import submitit
import torch

from app.study import work
from app.study.results import DIVERGED, DONE, FAILED
from app.study.runs import Run

Cluster = Literal["local", "slurm"]

TRIES = 2
"""A run that failed is tried once more, by each call of the study."""

WEEK = 7 * 24 * 60
"""Minutes; submitit ends a local job after it."""


@dataclass
class State:
    """Where a run stands.

    Args:
        run: Which.
        status: ``waiting``, ``running``, or how it ended.
        failures: Since this call of the study.
        detail: The last line of the last attempt that failed.
        began: When the present attempt was started, seconds since the epoch.
        seconds: What a run that has ended took.
    """

    run: Run
    status: str = "waiting"
    failures: int = 0
    detail: str = ""
    began: float = 0.0
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.status in (DONE, DIVERGED, FAILED)


@dataclass(frozen=True)
class Machine:
    """Where runs go.

    Args:
        cluster: ``local`` processes of this machine, or SLURM jobs.
        workers: Runs at once; as many as fit in cores, memory and GPUs if 0 (on SLURM: all).
        threads: Of each run.
        memory_gb: That a run is expected to need.
        slurm: Options of a job, such as partition, time (minutes), gpus_per_node.
    """

    cluster: Cluster = "local"
    workers: int = 0
    threads: int = 1
    memory_gb: float = 2.0
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def slots(self) -> int:
        """How many runs may go at once."""
        if self.workers:
            return self.workers
        if self.cluster == "slurm":
            return 1_000_000
        if torch.cuda.is_available():
            return torch.cuda.device_count()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        fit = int(psutil.virtual_memory().available / (self.memory_gb * 2**30))
        return max(1, min(cores // self.threads, fit))


class Scheduler:
    """Starts runs, watches them, and knows those that an earlier call has started.

    Args:
        folder: Of the study.
        machine: Where runs go.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder
        self.machine = machine
        self.states: dict[str, State] = {}
        self.slots: dict[int, str] = {}
        self._jobs: dict[str, submitit.Job[None]] = {}

    def add(self, runs: list[Run]) -> None:
        """Takes on runs that it does not have yet, in this order; finished ones are never repeated."""
        for run in runs:
            if run.path not in self.states:
                state = State(run)
                note = self._note(run)
                self.states[run.path] = state
                if self._ended(state) or not note:
                    continue
                if self._alive(note):
                    state.status, state.began = "running", float(note["began"])
                    self._occupy(run.path, note.get("slot"))
                elif note.pop("failed", False):
                    work.write(note_path(self.folder, run), note)

    def step(self) -> None:
        """Looks after what runs, then starts what fits."""
        for path, state in self.states.items():
            if state.status == "running":
                self._look(path, state)
        limit = self.machine.slots()
        for path, state in self.states.items():
            if len(self.slots) >= limit:
                return
            if state.status == "waiting":
                self._start(path, state)

    def drain(self, draw: Callable[[], None], pause: float = 1.0) -> None:
        """Goes on until every run has ended.

        Args:
            draw: Called after each look.
            pause: Seconds between two looks.
        """
        while True:
            self.step()
            draw()
            if all(state.ended for state in self.states.values()):
                return
            time.sleep(pause)

    def stop(self) -> None:
        """Asks the local runs to end, and waits for them: each leaves a checkpoint to go on from."""
        if self.machine.cluster != "local":
            return
        mine: list[psutil.Process] = []
        for path in self.slots.values():
            process = self._process(self._note(self.states[path].run))
            if process is not None:
                mine += [*process.children(recursive=True), process]
        for process in mine:
            try:
                process.terminate()
            except psutil.NoSuchProcess:
                continue
        _, left = psutil.wait_procs(mine, timeout=60)
        for process in left:
            process.kill()

    def _ended(self, state: State) -> bool:
        folder = self.folder / state.run.path
        result = work.outcome(folder)
        if result is not None:
            state.status = result["status"]
            state.seconds = float(result.get("seconds", 0.0))
            state.detail = result.get("detail", "")
        return state.ended

    def _look(self, path: str, state: State) -> None:
        note = self._note(state.run)
        if self._alive(note):
            return
        self.slots = {slot: held for slot, held in self.slots.items() if held != path}
        self._jobs.pop(path, None)
        if self._ended(state):
            return
        state.detail = last_line(Path(note["logs"]), str(note["job"]))
        state.failures += 1
        state.status = FAILED if state.failures >= TRIES else "waiting"
        if state.status == FAILED:
            work.write(note_path(self.folder, state.run), {**note, "failed": True})

    def _start(self, path: str, state: State) -> None:
        run = state.run
        if self._ended(state):
            return
        folder = self.folder / path
        logs = self.folder / "jobs" / path
        if folder.exists() and not (folder / "checkpoints" / "last.ckpt").is_file():
            shutil.rmtree(folder)  # of a run that was stopped before there was anything to go on from
        slot = self._occupy(path, None)
        executor = submitit.AutoExecutor(folder=str(logs), cluster=self.machine.cluster)
        executor.update_parameters(**self._parameters(slot))
        threads = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(self.machine.threads)
        try:
            job = executor.submit(work.execute, run, folder)
        finally:
            os.environ.pop("OMP_NUM_THREADS")
            if threads is not None:
                os.environ["OMP_NUM_THREADS"] = threads
        self._jobs[path] = job
        state.status, state.began = "running", time.time()
        note = {
            "job": job.job_id,
            "logs": str(logs),
            "slot": slot,
            "began": state.began,
        }
        if self.machine.cluster == "local":
            note["created"] = psutil.Process(int(job.job_id)).create_time()
        work.write(note_path(self.folder, run), note)

    def _parameters(self, slot: int) -> dict[str, Any]:
        if self.machine.cluster == "slurm":
            slurm = {f"slurm_{key}": value for key, value in self.machine.slurm.items()}
            setup = [f"export OMP_NUM_THREADS={self.machine.threads}"]
            return {
                "cpus_per_task": self.machine.threads,
                "mem_gb": self.machine.memory_gb,
                "slurm_setup": setup,
                **slurm,
            }
        parameters: dict[str, Any] = {"timeout_min": WEEK, "cpus_per_task": self.machine.threads}
        if torch.cuda.is_available():
            gpu = slot % torch.cuda.device_count()
            parameters |= {"gpus_per_node": 1, "local_visible_gpus": [gpu]}
        return parameters

    def _occupy(self, path: str, slot: int | None) -> int:
        free = slot if slot is not None and slot not in self.slots else None
        if free is None:
            free = next(number for number in range(len(self.slots) + 1) if number not in self.slots)
        self.slots[free] = path
        return free

    def _note(self, run: Run) -> dict[str, Any]:
        return work.read(note_path(self.folder, run)) or {}

    def _alive(self, note: Mapping[str, Any]) -> bool:
        if self.machine.cluster == "slurm":
            job = submitit.SlurmJob(folder=note["logs"], job_id=str(note["job"]))
            return not job.done()
        return self._process(note) is not None

    @staticmethod
    def _process(note: Mapping[str, Any]) -> psutil.Process | None:
        # A number alone may be another's by now.
        if "created" not in note:
            return None
        try:
            process = psutil.Process(int(note["job"]))
            alive = process.status() != psutil.STATUS_ZOMBIE
            return process if alive and abs(process.create_time() - note["created"]) < 1 else None
        except psutil.NoSuchProcess:
            return None


def note_path(folder: Path, run: Run) -> Path:
    """Where the study in ``folder`` notes the job of a run."""
    return folder / "jobs" / run.path / "job.json"


def last_line(logs: Path, job: str) -> str:
    """The last line that a job wrote before it ended, without the tracker's own."""
    for kind in ("err", "out"):
        lines: list[str] = []
        for path in sorted(logs.glob(f"{job}_*_log.{kind}")):
            lines += path.read_text(errors="replace").splitlines()
        wanted = [line.strip() for line in lines if line.strip() and not line.startswith("submitit")]
        if wanted:
            return wanted[-1][:300]
    return "it ended without a word"
