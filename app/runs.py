"""The folder of a run: ``<root>/<experiment>/<stage>_<number>``, one for everything that a run writes."""

import os
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

FOLDER_VARIABLE = "APP_RUN_FOLDER"
"""Tells the processes that a fit launches which folder it has claimed."""

CONFIG = "config.yaml"
"""The settings of a run, in its folder."""

STAGES = {"fit": "version"}
"""What the number of a folder is preceded by, where it is not the subcommand's own name."""


def claim(root: Path, experiment: str, stage: str) -> Path:
    """Makes and returns the first free folder for a run of ``experiment``.

    Claiming is making the folder, so two runs that start at once get different ones. Other processes
    of the same run get the folder of the first; what they would resolve themselves is never written to,
    since the trainer broadcasts the first process's folder.

    Raises:
        PermissionError: The folder cannot be written to.
        FileExistsError: A file is where the folder of the experiment should be.
    """
    if rank_zero_only.rank:  # type: ignore[attr-defined]  # set when Lightning is imported
        return Path(os.environ.get(FOLDER_VARIABLE, root / experiment / "pending"))
    parent = root / experiment
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise FileExistsError(
            f"the run folder {parent} cannot be made: a file of that name is in the way"
        ) from None
    except OSError as error:
        raise PermissionError(f"the run folder {parent} cannot be made: {error.strerror}") from None
    prefix = STAGES.get(stage, stage)
    number = 1 + max((number_of(path, prefix) for path in parent.iterdir()), default=-1)
    while True:
        folder = parent / f"{prefix}_{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise PermissionError(f"the run folder {folder} cannot be made: {error.strerror}") from None
        else:
            os.environ[FOLDER_VARIABLE] = str(folder)
            return folder


def home(checkpoint: Path) -> Path | None:
    """Returns the folder of the run that wrote a checkpoint, None if it lies elsewhere."""
    folder = checkpoint.parent.parent
    return folder if checkpoint.parent.name == "checkpoints" and (folder / CONFIG).is_file() else None


def check_writable(folder: Path) -> None:
    """Refuses to go on with a run in a folder that cannot be written to.

    Raises:
        PermissionError: It cannot.
    """
    for path in (folder, folder / "checkpoints"):
        if not os.access(path, os.W_OK):
            raise PermissionError(f"the run folder {path} cannot be written to")


def number_of(path: Path, prefix: str) -> int:
    """Returns the number in a run folder's name, −1 where it is another kind of name."""
    head, _, tail = path.name.rpartition("_")
    return int(tail) if head == prefix and tail.isdigit() else -1


def release(folder: Path) -> None:
    """Removes a claimed folder in which nothing was written, and the experiment's if it is empty."""
    for path in (folder, folder.parent):
        if not path.is_dir() or any(path.iterdir()):
            return
        path.rmdir()


def checkpoint(root: Path, experiment: str, name: str) -> Path:
    """Returns the checkpoint ``best`` or ``last`` of the newest run of an experiment that has one.

    Raises:
        FileNotFoundError: No run of the experiment has such a checkpoint.
    """
    parent = root / experiment
    folders = sorted(parent.glob("version_*"), key=lambda path: number_of(path, "version"), reverse=True)
    for folder in folders:
        path = folder / "checkpoints" / f"{name}.ckpt"
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"there is no checkpoint {name}.ckpt in {parent}/version_*/checkpoints: fit first, or name a file"
    )
