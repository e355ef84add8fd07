"""A real Chromium, headless; on Debian, as root, it is installed where it is missing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from rabbitmq_server import APT, run

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class NoBrowser(Exception):
    """There is none, and none can be had."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def find() -> Path:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return Path(found)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoBrowser("no chromium, and no way to install it")
    run(*APT, "update")
    run(*APT, "install", "-y", "--no-install-recommends", "chromium", "fonts-inter")
    return find()
