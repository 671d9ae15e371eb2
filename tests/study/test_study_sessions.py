"""Studies from the outside: killed and called again, with a run that fails, with a candidate."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small

from tests.processes import REPOSITORY

LIMIT = 240


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
    command = [sys.executable, "-m", "app", "study", "small_study.yaml", "--output=out", *options]
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"no end after {LIMIT} s: {process.communicate()}") from None
    return process.returncode, out, err


def wait_for(condition) -> None:
    for _ in range(LIMIT * 10):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that")


def test_a_killed_study_goes_on_and_adopts_what_lives(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["measurements"]["slow"]["arguments"]["seconds"] = 4.0
    small.write(tmp_path, content)
    first = start(tmp_path, "--workers=2")
    wait_for(lambda: "ended-1" in small.calls(tmp_path) and len(small.calls(tmp_path)) > 3)
    first.kill()  # the study alone: its runs live on, in processes of their own
    first.wait()
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("result.json")}

    code, out, err = finish(start(tmp_path, "--workers=2"))

    assert code == 0, out + err
    calls = small.calls(tmp_path)
    assert sorted(calls) == sorted(f"{event}-{seed}" for event in ("began", "ended") for seed in (1, 2, 3))
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())
    results = sorted(
        str(p.parent.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("result.json")
    )
    assert results == sorted(f"{name}/seed_{seed}" for name in ("slow", "digits/plain") for seed in (1, 2, 3))
    again, out, _ = finish(start(tmp_path))
    assert again == 0
    assert small.calls(tmp_path) == calls


def test_a_run_that_always_fails_is_tried_twice_and_listed(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["measurements"] = {
        "valve": {"label": "valve", "function": "small.broken", "metric": "value"},
    }
    small.write(tmp_path, content)
    code, out, _ = finish(start(tmp_path))
    assert code == 1
    assert small.calls(tmp_path).count("began-2") == 2
    assert small.calls(tmp_path).count("began-1") == 1
    assert "valve/seed_2  failed" in out
    assert "the valve is stuck" in out
    page = (tmp_path / "out" / "report" / "report.md").read_text()
    assert "the valve is stuck" in page


@pytest.mark.parametrize("name", ["MyLayer", "MyNetwork"])
def test_an_outside_candidate_is_sized_and_tuned(tmp_path, name):
    content = copy.deepcopy(small.STUDY)
    content["measurements"] = {}
    content["presets"]["quick"]["seeds"] = [1]
    small.write(tmp_path, content)
    code, out, err = finish(start(tmp_path, f"--candidate=small.{name}"))
    assert code == 0, out + err
    study = json.loads((tmp_path / "out" / "study.json").read_text())
    sizes = study["sizes"][f"digits/{name}"]
    assert abs(sizes["parameters"] / sizes["reference"] - 1) < 0.1
    assert sizes["settings"]
    assert len(list((tmp_path / "out" / "tuning" / "digits" / name).glob("*/result.json"))) == 2
    assert json.loads((tmp_path / "out" / "digits" / name / "seed_1" / "result.json").read_text())["metrics"]
    assert name in (tmp_path / "out" / "report" / "report.md").read_text()


def test_claims_are_not_moved_afterwards(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["models"] = {"plain": {**content["models"]["plain"]}}
    content["measurements"] = {}
    content["presets"]["quick"]["seeds"] = [1]
    small.write(tmp_path, content)
    assert finish(start(tmp_path))[0] == 0
    content["claims"]["better_than_chance"]["value"] = 0.05
    small.write(tmp_path, content)
    code, _, err = finish(start(tmp_path))
    assert code == 2
    assert err.count("\n") == 1
    assert "the claims of small_study have changed" in err
    content = copy.deepcopy(small.STUDY)
    content["measurements"] = {}
    content["presets"]["quick"]["seeds"] = [1]
    content["models"]["plain"]["settings"]["data.init_args.batch_size"] = 32
    small.write(tmp_path, content)
    code, _, err = finish(start(tmp_path))
    assert code == 2
    assert "data.init_args.batch_size" in err


def test_a_grid_may_grow(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["measurements"] = {}
    content["presets"]["quick"]["seeds"] = [1]
    small.write(tmp_path, content)
    assert finish(start(tmp_path))[0] == 0
    result = tmp_path / "out" / "digits" / "plain" / "seed_1" / "result.json"
    before = result.stat().st_mtime_ns
    content["models"]["later"] = {**small.MODEL, "label": "came later", "tuned": False}
    small.write(tmp_path, content)
    code, out, err = finish(start(tmp_path))
    assert code == 0, out + err
    assert result.stat().st_mtime_ns == before
    assert "came later" in (tmp_path / "out" / "report" / "report.md").read_text()
