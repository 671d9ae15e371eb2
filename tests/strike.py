"""Runs a command line that is killed, by SIGKILL, at a chosen moment: python -m tests.strike PLACE TIMES …"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

PLACES = (
    "never",
    "half-written draft",
    "before the rename",
    "after the rename",
    "validation",
    "end of validation",
)


def aim(place: str, times: int) -> None:
    """Lets SIGKILL strike when ``place`` is passed the given time."""
    from app import checkpoint_io
    from app.modules import Classification

    passed = 0

    def strike() -> None:
        nonlocal passed
        passed += 1
        if passed == times:
            os.kill(os.getpid(), signal.SIGKILL)

    class Disk:
        """Stands for ``os`` where checkpoints are written."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, number: int) -> None:
            if place == "half-written draft" and os.fstat(number).st_size > 0 and not _is_folder(number):
                nonlocal passed
                if passed + 1 == times:
                    os.ftruncate(number, os.fstat(number).st_size // 2)
                strike()
            os.fsync(number)

        def replace(self, draft: Path, target: Path) -> None:
            if place == "before the rename":
                strike()
            os.replace(draft, target)
            if place == "after the rename":
                strike()

    checkpoint_io.os = Disk()  # type: ignore[assignment]
    name = {"validation": "validation_step", "end of validation": "on_validation_end"}.get(place)
    if name:
        whole = getattr(Classification, name)

        def struck(self: Any, *args: Any) -> Any:
            strike()
            return whole(self, *args)

        setattr(Classification, name, struck)


def _is_folder(number: int) -> bool:
    return Path(f"/proc/self/fd/{number}").is_dir()


if __name__ == "__main__":
    from app.__main__ import main

    aim(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
