"""Data files on disk: found, verified and downloaded, with every failure in one line."""

import hashlib
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from urllib.error import URLError

SILENCE = 30.0  # seconds without an answer after which a download is given up


def read_file(path: Path, md5: str | None) -> bytes:
    """Returns the content of a file, whose MD5 must be the given one unless that is None.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        ValueError: it is another file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no data file {path}") from None
    except OSError as error:
        raise OSError(f"cannot read the data file {path}: {error.strerror}") from error
    if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(
            f"{path} is truncated or not the original file (its checksum differs): delete it to download it "
            "again, or set verify_checksums: false to read another file of the same layout"
        )
    return content


def provide(
    name: str, folder: Path, files: Sequence[str], download: bool, fetch: Callable[[Path], Path]
) -> None:
    """Makes sure that ``files`` exist in ``folder``, by a download if it is allowed and needed.

    The download goes to a temporary folder beside ``folder``; finished files are then renamed into place. So
    an interrupted one leaves nothing that could be taken for a data file, several processes may download at
    once, and files that are already there are neither replaced nor opened.

    Args:
        name: of the data set, for messages.
        folder: where the files belong.
        files: names in ``folder``.
        download: whether the network may be used.
        fetch: downloads into the given empty folder and returns the folder of the finished files.

    Raises:
        FileNotFoundError: files are missing and ``download`` is off.
        ConnectionError: the download failed.
        OSError: ``folder`` cannot be written.
    """
    missing = [file for file in files if not (folder / file).is_file()]
    if not missing:
        return
    remedy = f"put {', '.join(missing)} into {folder}"
    if not download:
        raise FileNotFoundError(f"{name} is not there and download is off: {remedy}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as scratch:
            with _deadline(SILENCE):
                finished = fetch(Path(scratch))
            for file in missing:
                (finished / file).replace(folder / file)
    # A URLError is an OSError, and torchvision reports a failed or damaged download as a RuntimeError.
    except (
        URLError,
        TimeoutError,
        ConnectionError,
        HTTPException,
        RuntimeError,
        EOFError,
        TarError,
    ) as error:
        raise ConnectionError(f"cannot download {name} (no network?): {remedy}") from error
    except OSError as error:
        raise OSError(f"cannot store {name} in {folder}: {error.strerror or error}") from error


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
