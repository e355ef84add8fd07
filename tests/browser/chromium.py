"""A headless Chromium; on Debian, as root, it is installed if it is missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from debian import can_install, install

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class NoBrowser(Exception):
    """No browser is installed and none can be installed."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def find() -> Path:
    if not _installed() and can_install():
        install("chromium", "fonts-inter", is_there=lambda: bool(_installed()))
    if not (found := _installed()):
        raise NoBrowser("no chromium, and no way to install it")
    return found


def _installed() -> Path | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((Path(found) for name in names if (found := shutil.which(name))), None)
