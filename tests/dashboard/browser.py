"""A real Chromium before a real dashboard: one browser and one server for all flows.

Each page that a test opens is watched: no error on the console, no report of the content policy, no request to another
host. Where Chromium is missing the tests are skipped, and in CI they fail.
"""

import asyncio
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from bolide.clock import SystemClock
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.server import serve

CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT = 1280, 800
LIMIT_MS = 60_000  # of a machine with much else to do
_COLOURS = 256  # a picture of 30 KB instead of 80
MAKES_PICTURES = os.environ.get("BOLIDE_PICTURES") == "1"
PICTURE_STORE = Path("/srv/bolide")
PICTURES = Path(__file__).parents[2] / "docs" / "dashboard"
PHONE_WIDTH, PHONE_HEIGHT = 390, 844
PHONE_PICTURES = os.environ.get("BOLIDE_PHONE_PICTURES")  # a directory for whole pages at that width, to look at


def demand_chromium() -> None:
    """Skip with a sentence, or fail where it must be."""
    if shutil.which(CHROMIUM) is not None:
        return
    sentence = "no Chromium at /usr/bin/chromium (on Debian: apt-get install chromium): nothing is tried in it"
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(namesrv: str, **settings: Any) -> Iterator[str]:
    """A dashboard on a free port, in a thread with a loop of its own; gives its address."""
    config = DashboardConfig(**{"namesrv": namesrv, "port": 0, "walk_interval_s": 1.0, **settings})
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    found: list[str] = []

    async def run() -> None:
        async with serve(config, SystemClock()) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), name="dashboard")
    thread.start()
    try:
        assert ready.wait(20), "the dashboard did not come up"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


@contextmanager
def picture_store() -> Iterator[Path | None]:
    """Where the brokers of pictures keep their files: a place as in life, and nowhere in particular for tests."""
    if not MAKES_PICTURES:
        yield None
        return
    PICTURE_STORE.mkdir()
    try:
        yield PICTURE_STORE
    finally:
        shutil.rmtree(PICTURE_STORE)


def _with_few_colours(shot: Image.Image) -> Image.Image:
    """The same with the colours that are on most of it: those of the style sheet stay what they are.

    Pillow's own search for the nearest colour is a rough one, which lets soft grounds change their tint.
    """
    pixels = numpy.asarray(shot, dtype=numpy.int32)
    numbers = (pixels[..., 0] << 16) | (pixels[..., 1] << 8) | pixels[..., 2]
    colours, where, counts = numpy.unique(numbers, return_inverse=True, return_counts=True)
    kept = colours[numpy.argsort(counts)[::-1][:_COLOURS]]
    parts, kept_parts = (numpy.stack([each >> 16, each >> 8 & 255, each & 255], axis=-1) for each in (colours, kept))
    nearest = numpy.array([((kept_parts - part) ** 2).sum(axis=1).argmin() for part in parts], dtype=numpy.uint8)
    found = Image.fromarray(nearest[where.reshape(numbers.shape)])
    found.putpalette(kept_parts.astype(numpy.uint8).tobytes())
    return found


class Watched:
    """One visitor: a context of the browser's own, whose pages are watched."""

    def __init__(self, browser: Browser, url: str, **settings: Any) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, locale="en-GB", timezone_id="Europe/Berlin", **settings
        )
        self.context.set_default_timeout(LIMIT_MS)
        self.page = self.new_page()

    def new_page(self) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.on("request", lambda request: self._see(request.url))
        return page

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error" or "Content Security Policy" in text:
            self.complaints.append(text)

    def _see(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.complaints.append(f"a request to {url}")

    def go(self, path: str) -> None:
        """Open a page and wait for its content."""
        self.page.goto(self.url + path)
        self.settled()

    def back(self, heading: str) -> None:
        """The browser's button: the page before is there again, with what it showed."""
        self.page.go_back()
        expect(self.page.locator("h1")).to_contain_text(heading)
        self.settled()

    def settled(self) -> None:
        """Wait until what was asked for is there."""
        self.page.wait_for_selector("main footer.asked")

    def picture(self, name: str) -> None:
        """Keep what is seen, light and dark, where the pictures of the documentation are made."""
        if not MAKES_PICTURES:
            return
        PICTURES.mkdir(exist_ok=True)
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            shot = Image.open(io.BytesIO(self.page.screenshot()))
            _with_few_colours(shot.convert("RGB")).save(PICTURES / f"{name}-{scheme}.png", optimize=True)
            if PHONE_PICTURES:
                self.page.set_viewport_size({"width": PHONE_WIDTH, "height": PHONE_HEIGHT})
                self.page.screenshot(path=Path(PHONE_PICTURES) / f"{name}-phone-{scheme}.png", full_page=True)
                self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        self.page.emulate_media(color_scheme="light")

    def close(self) -> None:
        self.context.close()
        assert not self.complaints, "; ".join(self.complaints)
