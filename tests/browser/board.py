"""TensorBoard in a headless browser that may ask for nothing outside this machine."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.dashboard_command import folders, launch, wait_until_read

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 60


class Board:
    """Opens tabs of TensorBoard, each in a fresh context, and keeps the addresses that they asked for."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        self.address = address
        self.asked: list[str] = []

    @contextmanager
    def tab(self, where: str, width: int = 1500, height: int = 1000) -> Iterator[Any]:
        """The page at ``where``, such as ``#custom_scalars``."""
        context = self._browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(self.address + where)
        try:
            yield page
        finally:
            context.close()

    def strangers(self) -> list[str]:
        """What was asked for outside of this machine."""
        return [url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))]


@contextmanager
def board(folder: str) -> Iterator[Board]:
    """TensorBoard on a folder, and a browser."""
    from playwright.sync_api import sync_playwright

    address = launch(folders([folder]))
    wait_until_read(address, threading.Event())
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield Board(browser, address)
        finally:
            browser.close()


def coloured(element: Any) -> int:
    """Saturated pixels in a picture of an element: lines are, axes and words are not."""
    pixels = np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("RGB")).astype(int)
    return int((pixels.max(-1) - pixels.min(-1) > 25).sum())
