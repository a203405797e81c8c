"""A studio as a process, and a real browser that looks at it with the network cut."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .folder import make, million

CHROMIUM = (
    os.environ.get("ECKART_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)


@pytest.fixture(scope="session")
def browser():
    pytest.importorskip(
        "starlette", reason="the extra studio is not installed: pip install 'eckart[studio]'"
    )
    driver = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; install it, or name it by ECKART_CHROMIUM")
    with driver.sync_playwright() as play:
        # Without a sandbox it also starts as root, as in containers; it sees pages of the studio
        # alone.
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Studio:
    """``eckart studio`` on a folder, with the address it printed."""

    def __init__(self, folder: Path):
        self.folder = folder
        # Warnings of the interpreter belong to the test's log, not to the line that is read here.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eckart", "studio", str(folder), "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://[\d.]+:\d+/#token=\S+", line)
        assert found, f"no address in the first line: {line!r}"
        self.address = found.group(0)
        self.base = self.address.split("#")[0]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


@pytest.fixture(scope="session")
def studio(browser, tmp_path_factory):
    running = Studio(make(tmp_path_factory.mktemp("studio")))
    yield running
    running.close()


@pytest.fixture(scope="session")
def large_studio(browser, tmp_path_factory):
    running = Studio(million(tmp_path_factory.mktemp("large")))
    yield running
    running.close()


class Visit:
    """A page of the studio, with everything it asked for and complained about."""

    def __init__(self, browser, studio: Studio, width: int = 1280, height: int = 800, **options):
        self.studio, self.foreign, self.complaints = studio, [], []
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, accept_downloads=True, **options
        )
        self.context.route("**/*", self._only_here)
        self.context.set_default_timeout(30_000)
        self.page = self.context.new_page()
        self.page.on(
            "console",
            lambda said: (
                self.complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(studio.address)
        self.page.wait_for_selector("h1")

    def _only_here(self, route) -> None:
        if route.request.url.startswith((self.studio.base, "data:", "blob:")):
            route.continue_()
        else:
            self.foreign.append(route.request.url)
            route.abort()

    def go(self, place: str):
        """Open an address of the page and wait until what it asks for is there."""
        self.page.goto(self.studio.base + place)
        self.ready()
        return self.page

    def ready(self) -> None:
        self.page.wait_for_function(
            "() => document.querySelector('h1') && !document.querySelector('.waiting, "
            ".map-wait, .stale')"
        )

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(browser, studio):
    """A visit at 1280 x 800; afterwards the console was silent and no other host was asked."""
    here = Visit(browser, studio)
    yield here
    here.close()
    assert here.foreign == []
    assert here.complaints == []
