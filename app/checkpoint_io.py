"""Checkpoints that are either written whole or not at all."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO


class CheckpointError(OSError):
    """A checkpoint could not be written; the file of that name is as it was before."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, waits for the disk, and renames it into place.

    A process that is killed at any moment leaves the old file or the new one, never a part of one. The draft
    lies in the same folder, because a rename is atomic inside one file system only. What a killed process has
    left half written is overwritten by the next draft of that name.

    Raises:
        CheckpointError: The disk is full, the folder is read-only, or the like.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Writes ``checkpoint`` to ``path``, or leaves ``path`` alone."""
        target = Path(path)
        try:
            write_atomically(target, checkpoint)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {target} cannot be written: {error.strerror or error}; earlier ones are kept"
            ) from error


def write_atomically(target: Path, content: Mapping[str, Any]) -> None:
    """Saves ``content`` as ``target`` by way of a draft beside it.

    Raises:
        OSError: It cannot be written; the draft is removed again.
    """
    # Into memory first: torch.save to a file turns an error of the disk into one of its own archive.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    draft = target.with_name(f".{target.name}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with draft.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the new name, too, outlives a power cut
    finally:
        os.close(folder)
