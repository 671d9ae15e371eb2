"""``python -m app dashboard``: TensorBoard on the runs, in this process, until Ctrl-C."""

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from app import commands

EVENTS = "events.out.tfevents.*"


def parser() -> ArgumentParser:
    """The command's options."""
    made = commands.parser(
        "dashboard",
        "Show runs in TensorBoard and print the address of the dashboard. Ctrl-C stops it.",
        "runs/z_plane_digits runs/edelta_gyroscope",
    )
    made.add_argument("runs", type=str, nargs="*", default=["runs"], help="Folders with runs.")
    made.add_argument("--port", type=int, default=0, help="Port to listen at; 0 for a free one.")
    made.add_argument("--host", type=str, default="127.0.0.1", help="Address to listen at.")
    return made


def folders(names: Sequence[str]) -> dict[str, Path]:
    """Name in TensorBoard → folder.

    Raises:
        FileNotFoundError: a folder does not exist, or none of its runs wrote TensorBoard files.
        ValueError: a folder among several whose path TensorBoard would take for two.
    """
    found: dict[str, Path] = {}
    for name in names:
        path = Path(name).resolve()
        if not path.is_dir():
            raise FileNotFoundError(f"there is no folder {name}; fit first, or name the folder of the runs")
        if next(path.rglob(EVENTS), None) is None:
            raise FileNotFoundError(
                f"no run in {name} wrote TensorBoard files; fit with a TensorBoard logger"
            )
        if len(names) > 1 and set(",:") & set(str(path)):
            raise ValueError(f"with several folders their paths must have no comma or colon, got {path}")
        unique = "_".join(path.parts[-2:]) if path.name in found else path.name
        found[unique if unique not in found else str(path).strip("/").replace("/", "_")] = path
    return found


def main(arguments: Sequence[str]) -> int:
    """Serves until interrupted.

    TensorBoard runs in threads of this process, so nothing outlives it, however it ends.

    Returns:
        0 after Ctrl-C or SIGTERM.

    Raises:
        FileNotFoundError: see ``folders``.
        ValueError: a mistake on the command line, or a port that is taken.
    """
    asked = commands.parse(parser(), arguments)
    chosen = folders(asked.runs)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    address = launch(chosen, asked.host, asked.port)
    wait_until_read(address, stop)
    if not stop.is_set():
        print(f"dashboard   {address}#custom_scalars", flush=True)
        print(f"everything  {address}   (Ctrl-C stops)", flush=True)
    while not stop.wait(3600):
        pass
    return 0


def launch(chosen: dict[str, Path], host: str = "127.0.0.1", port: int = 0) -> str:
    """Starts TensorBoard in threads of this process; returns its address, with a slash at the end."""
    import logging

    from tensorboard import assets, default, program

    for name in ("tensorboard", "werkzeug"):
        logging.getLogger(name).setLevel(logging.ERROR)
    board = program.TensorBoard(default.get_plugins(), assets.get_default_assets_zip_provider())
    if len(chosen) == 1:
        where = ["--logdir", str(next(iter(chosen.values())))]
    else:
        where = ["--logdir_spec", ",".join(f"{name}:{path}" for name, path in chosen.items())]
    # load_fast would read in a process of its own, which could be left behind.
    board.configure(
        argv=["", *where, "--host", host, "--port", str(port), "--load_fast=false", "--reload_interval=5"]
    )
    try:
        return str(board.launch())
    except program.TensorBoardServerException as error:
        raise ValueError(" ".join(error.msg.split())) from None


def wait_until_read(address: str, stop: threading.Event, seconds: float = 60) -> None:
    """Waits until at least one run has been read: the page is there before its contents are.

    Raises:
        TimeoutError: nothing was read in time.
    """
    end = time.monotonic() + seconds
    while not stop.is_set():
        with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=seconds) as answer:
            if json.load(answer):
                return
        if time.monotonic() > end:
            raise TimeoutError(f"TensorBoard read no run within {seconds:.0f} s")
        stop.wait(0.2)
