"""Commands of several processes under a hard time limit."""

import os
import signal
import socket
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# What an enclosing launcher would leave behind, and the command's own launcher would take for its own.
INHERITED = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "PL_GLOBAL_SEED",
    "APP_RUN_FOLDER",
    "APP_RANK_NOTES",
    "APP_RANK_STARTER",
)


def environment(*paths: Path) -> dict[str, str]:
    """What a command is given: one thread, no GPU, the repository, and a free port of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name not in INHERITED}
    env |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, *paths)))}
    return env


def run_limited(command: list[str], seconds: float, cwd: Path, *paths: Path) -> tuple[int, str]:
    """Runs a command in a process group of its own and kills the whole group when time is up.

    Args:
        command: The command.
        seconds: The limit.
        cwd: Its working folder.
        paths: Added to its import path, after the repository.

    Returns:
        The exit code and everything it printed.
    """
    process = subprocess.Popen(
        command, env=environment(*paths), cwd=cwd, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"no end after {seconds} s:\n{output[-3000:]}") from None
    return process.returncode, output
