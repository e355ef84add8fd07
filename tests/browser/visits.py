"""A visitor of the page: actions, and what the page shows."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Route, expect


class Place(Protocol):
    """The address of a service, or of a gateway without a pipeline."""

    @property
    def url(self) -> str: ...


ANNA = "anna-7f3c-secret"
BEN = "ben-91d0-secret"
ANSWER_MS = 90_000


@dataclass(frozen=True)
class BareGateway:
    """A gateway without a pipeline and without tokens, for prepared runs."""

    home: Path
    url: str


class Visit:
    def __init__(self, page: Page, service: Place, token: str = ANNA) -> None:
        self.page, self.service, self.token = page, service, token
        self.requests: list[Request] = []
        self.console_messages: list[str] = []
        self.expects_failed_requests = False  # of the gateway; the browser logs them by itself
        self.expects_console_messages = False  # that the test provokes
        page.on("request", self._see)
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.console_messages.append(str(error)))

    def open(self, place: str = "") -> None:
        self.page.goto(f"{self.service.url}/{place}")

    def enter(self, place: str = "") -> None:
        """Enter the token, as a person would type it."""
        self.open(place)
        self.sign_in(self.token)
        expect(self.page.locator("#signing-in")).to_be_hidden()

    def sign_in(self, token: str) -> None:
        self.page.get_by_label("Token", exact=True).fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def choose(self, folder: Path) -> None:
        self.page.locator("#folder").set_input_files(str(folder))

    def drop(self, *things: Path) -> None:
        """Drop files and folders on the drop zone."""
        place = self.page.locator(".drop").bounding_box()
        assert place is not None
        devices = self.page.context.new_cdp_session(self.page)
        carried = {"items": [], "files": [str(thing) for thing in things], "dragOperationsMask": 1}
        where = {"x": place["x"] + place["width"] / 2, "y": place["y"] + 20}
        for kind in ("dragEnter", "dragOver", "drop"):
            devices.send("Input.dispatchDragEvent", {"type": kind, "data": carried, **where})

    def start(self, label: str) -> str:
        """Start the upload and return its run."""
        self.page.get_by_label("Label").fill(label)
        self.page.get_by_role("button", name="Start", exact=True).click()
        return self.run_shown()

    def run_shown(self) -> str:
        self.page.wait_for_url(re.compile("#/runs/"))
        return self.page.url.rpartition("/")[2]

    def await_state(self, state: str) -> None:
        expect(self.page.locator(".title .badge")).to_have_text(state, timeout=ANSWER_MS)

    def hold(self, *calls: str) -> list[Route]:
        """Hold matching requests, in order, until the test continues them."""
        held: list[Route] = []

        def keep(route: Route) -> None:
            held.append(route)

        for call in calls:
            self.page.route(call, keep)
        return held

    def table(self, caption: str) -> Locator:
        return self.page.get_by_role("table", name=caption, exact=True)

    def rows(self, caption: str) -> list[list[str]]:
        """Return the cells of a table's body, without the padding of figures."""
        texts: list[list[str]] = self.table(caption).evaluate(
            "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return [[cell.strip().rstrip("\u2007") for cell in row] for row in texts]

    def saved(self, take: Callable[[], Any]) -> bytes:
        """Return the file that a click makes the browser save."""
        with self.page.expect_download() as download:
            take()
        return Path(download.value.path()).read_bytes()

    def require_quiet(self) -> None:
        assert self.expects_console_messages or not self.console_messages, self.console_messages
        addresses = [request.url for request in self.requests]
        assert [url for url in addresses if not url.startswith((self.service.url, "blob:", "data:"))] == []
        assert [url for url in addresses if self.token in url] == []

    def _see(self, request: Request) -> None:
        self.requests.append(request)

    def _listen(self, message: ConsoleMessage) -> None:
        is_of_network = message.text.startswith("Failed to load resource")
        is_expected = is_of_network and (self.expects_failed_requests or _comes_and_goes(message))
        if message.type == "error" and not is_expected:
            self.console_messages.append(f"{message.text} ({message.location['url']})")


def _comes_and_goes(failed: ConsoleMessage) -> bool:
    """Whether provisional answers are not there yet, or newer ones replaced them; the page asks again."""
    url, said = failed.location["url"], failed.text
    return ("provisional=true" in url and "503" in said) or ("attempt=" in url and "404" in said)
