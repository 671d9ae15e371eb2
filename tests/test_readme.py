"""The README's commands: each is run, in its order and shortened, or says what it needs."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SHORT = ("--trainer.max_epochs=1", "--model.init_args.network.init_args.depth=3")
ELSEWHERE = {  # command → the test that runs it
    "python3 -m venv .venv && .venv/bin/pip install -q -e . ": "test_wheel.py",
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'": "the gate",
    "python -m app dashboard ": "test_dashboard_command.py",
}


def commands() -> list[str]:
    """Commands that need nothing; a comment on a line of its own speaks of the lines below it."""
    found = []
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL):
        for paragraph in block.split("\n\n"):
            lines = paragraph.strip().splitlines()
            heading = lines[0] if lines[0].startswith("#") else ""
            found += [
                line
                for line in lines
                if not line.startswith("#") and "needs" not in heading and "needs" not in comment(line)
            ]
    return [line for line in found if not line.startswith(tuple(ELSEWHERE))]


def comment(line: str) -> str:
    return line.partition(" # ")[2]


@pytest.mark.timeout(900)  # a study among them
def test_commands_run(run: Callable[[str], tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the study's runs are processes of their own
    lines = commands()
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[:3] == ["python", "-m", "app"], line
        short = {"fit": SHORT, "test": SHORT[1:]}.get(words[3] if words[3:] else "", ())
        code, _, err = run(shlex.join((*words[3:], *short)))
        assert code == 0, f"{line}\n{err}"
