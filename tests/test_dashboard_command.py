"""``python -m app dashboard``: serves, stops on Ctrl-C, and says in one line what is wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from torch.utils.tensorboard import SummaryWriter

from app.dashboard_command import folders
from tests.processes import REPOSITORY


def write(folder):
    with SummaryWriter(str(folder)) as writer:
        writer.add_scalar("val/loss", 1.0, 0)


@pytest.fixture
def start(workspace):
    """Starts the command and waits for its address; ends it by its own id if the test did not."""
    started = []

    def begin(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "dashboard", *arguments],
            env=environment,
            cwd=workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line + process.stdout.read()
        assert line.strip().endswith("#custom_scalars")
        return process, found[0]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_all_runs_and_stops_without_leaving_anything(start, workspace, number):
    write(workspace / "runs" / "a" / "version_0")
    write(workspace / "runs" / "b" / "version_0")
    process, address = start()
    with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=30) as answer:
        assert {"a/version_0", "b/version_0"} == set(json.load(answer))
    if os.path.exists(f"/proc/{process.pid}/task"):
        assert children(process.pid) == []
    process.send_signal(number)
    assert process.wait(30) == 0
    assert "Traceback" not in process.stdout.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)


def test_several_folders(start, workspace):
    write(workspace / "here" / "version_0")
    write(workspace / "there" / "version_0")
    _, address = start("here", "there")
    with urllib.request.urlopen(f"{address}data/runs", timeout=30) as answer:
        assert answer.read() == b'["here/version_0","there/version_0"]'.replace(b",", b", ")


def test_folders_of_one_name_stay_apart(workspace):
    for name in ("one/runs", "two/runs"):
        write(workspace / name)
    assert set(folders(["one/runs", "two/runs"])) == {"runs", "two_runs"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dashboard", "there is no folder runs; fit first, or name the folder of the runs"),
        ("dashboard nowhere", "there is no folder nowhere; fit first"),
        ("dashboard empty", "no run in empty wrote TensorBoard files; fit with a TensorBoard logger"),
        (
            "dashboard --prot=1",
            "there is no option --prot; did you mean port?; see python -m app dashboard --help",
        ),
        ("dashboard --port=x", "port must be int, got x; see python -m app dashboard --help"),
    ],
)
def test_mistakes_are_told_in_one_line(run, workspace, line, message):
    (workspace / "empty").mkdir()
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_help_has_an_example(run):
    code, out, _ = run("dashboard --help")
    assert code == 0
    assert "example: python -m app dashboard" in out
