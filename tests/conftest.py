"""What the tests of every part use: the command line in process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.__main__ import main


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str, str]]:
    """Runs a command line in process, in an empty folder; returns exit code, output and errors."""

    def call(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(line.split())
        out, err = capsys.readouterr()
        return code, out, err

    return call
