"""Ten kills of a run, and whether the run that goes on is the one that was never killed.

Prints the table: python -m pytest -m slow tests/test_kills.py -s
"""

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.fingerprints import fingerprint
from tests.processes import environment

FIT = (
    "fit --config z_plane_digits --trainer.accelerator=cpu --trainer.enable_progress_bar=false "
    "--trainer.enable_model_summary=false --trainer.max_epochs=4 --checkpoint.last_interval=0.1 "
    "--model.init_args.network.init_args.depth=6 --model.init_args.network.init_args.width=32"
)
# Place, at which passing; at random: which share of what is left of the run.
KILLS = [
    ("half-written draft", 2),
    ("half-written draft", 5),
    ("before the rename", 4),
    ("after the rename", 3),
    ("validation", 5),
    ("validation", 9),
    ("end of validation", 4),
    ("random", 1),
    ("random", 2),
    ("random", 3),
]


def start(folder: Path, place: str, times: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.strike", place, str(times), *FIT.split(), *options]
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def killed(folder: Path, place: str, times: int) -> str:
    """Starts a run, kills it, and says where it was."""
    last = folder / "runs/z_plane_digits/version_0/checkpoints/last.ckpt"
    process = start(folder, "never" if place == "random" else place, times)
    if place == "random":
        while not last.is_file() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(random.Random(times).uniform(0, 2))
        process.send_signal(signal.SIGKILL)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, errors
    drafts = [path.name for path in last.parent.glob(".*.tmp")]
    return f"{torch.load(last, weights_only=True)['global_step']:>4}  {', '.join(drafts) or '-':<15}"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_kills(tmp_path):
    def whole() -> dict[str, str]:
        folder = tmp_path / "whole"
        folder.mkdir()
        process = start(folder, "never", 0)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        return fingerprint(folder / "runs/z_plane_digits/version_0")

    def one(number: int) -> tuple[str, dict[str, str]]:
        place, times = KILLS[number]
        folder = tmp_path / str(number)
        folder.mkdir()
        where = killed(folder, place, times)
        process = start(folder, "never", 0, "--ckpt_path=last")
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert [path.name for path in (folder / "runs/z_plane_digits").iterdir()] == ["version_0"]
        moment = f"{place}, the {times}." if place != "random" else f"at random ({times})"
        return f"{number + 1:>2}  {moment:<26} {where}", fingerprint(folder / "runs/z_plane_digits/version_0")

    expected = whole()
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(one, range(len(KILLS))))
    n = len(expected)
    print(f"\n #  struck                     last.ckpt  draft left      weights       logs          all {n}")
    print(f" -  {'never':<26}   80  {'-':<15} {expected['weights']}  {expected['metrics.csv']}")
    for row, found in rows:
        agree = "agree" if found == expected else f"differ: {[k for k in found if found[k] != expected[k]]}"
        print(f"{row} {found['weights']}  {found['metrics.csv']}  {agree}")
    assert all(found == expected for _, found in rows)
