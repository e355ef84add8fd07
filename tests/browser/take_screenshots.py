"""Screenshots of every page, in light and dark mode: `python take_screenshots.py FOLDER`.

A private `kopi serve` gets a generated folder through the page, and some ended and failed runs.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from chromium import chromium
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from prepared_runs import shelve_nodes, write_failed_run
from visits import Visit

from acceptance.services import ENVIRONMENT, Service
from kopitiam import Client
from kopitiam.contracts.messages import NodeRecord
from kopitiam.synthetic import generate

DESK = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
SETTINGS = {
    "KOPI_PIPELINE__SHARDS": "3",
    "KOPI_PIPELINE__MAX_CHUNKS_PER_BATCH": "16",
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
}
DATA_SET = "penang"
Scheme = Literal["light", "dark"]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        data = Path(scratch) / "exports"
        generate(data, 0.002, 7)
        service = Service(Path(scratch) / "served" / "home", ENVIRONMENT | SETTINGS)
        service.start()
        try:
            furnish(service)
            run = upload(browser, service, data, folder)
            keep(service, data)
            for scheme in ("light", "dark"):
                take_all(browser, service, run, folder, scheme)
        finally:
            service.end()


def furnish(service: Service) -> None:
    """Write a fleet with a leader and a node that was not revived, and ended and failed runs."""
    now = time.time()
    shelve_nodes(
        service.home,
        NodeRecord("monitor-1", "monitor", 4102, None, "alive", now - 86_000, 3),
        NodeRecord("monitor-2", "monitor", 4103, None, "alive", now - 86_000, 3),
        NodeRecord("monitor-3", "monitor", 4177, None, "alive", now - 5_200, 5, leader=True),
        NodeRecord(
            "pipeline-2", "pipeline", None, None, "dead", now - 40, 7, alarm="not revived after 5 attempts"
        ),
        NodeRecord("rabbitmq", "service", 4090, None, "alive", now - 86_400, 1),
        NodeRecord("postgresql", "service", 4088, None, "alive", now - 86_400, 1),
    )
    write_failed_run(
        service.home, "Johor, March", "transactions: 131,072 rows processed, END promised 131,070"
    )
    ended = service.http.post("/api/v1/runs", json={"label": "Melaka, a try"}).json()["run"]
    service.http.delete(f"/api/v1/runs/{ended}")


def upload(browser: Browser, service: Service, data: Path, folder: Path) -> str:
    """Upload a folder, paused in the middle for screenshots of a running upload."""
    context = browser.new_context(viewport=DESK, color_scheme="light")
    visit = Visit(context.new_page(), service)
    visit.open("#/upload")
    visit.choose(data)
    expect(visit.page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        picture(visit.page, folder / f"upload-{scheme}.png")
    hold(context, after=62)
    run = visit.start("Penang, all of 2024 and 2025")
    expect(visit.page.locator(".coverage")).to_be_visible(timeout=300_000)
    expect(visit.page.locator("#chart-3 svg")).to_be_visible(timeout=300_000)
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        picture(visit.page, folder / f"run-live-{scheme}.png")
    context.unroute("**/chunks/*")
    visit.await_state("Done")
    context.close()
    return run


def keep(service: Service, data: Path) -> None:
    """Send the folder to a data set: without its last quarter, then whole."""
    with Client(service.url) as client, tempfile.TemporaryDirectory() as scratch:
        part = Path(shutil.copytree(data, Path(scratch) / "part"))
        for month in ("202504", "202505", "202506"):
            for file in part.rglob(f"*_{month}.csv"):
                file.unlink()
        for folder in (part, data):
            client.submit(folder, "Penang, quarter by quarter", data=DATA_SET)


def hold(context: BrowserContext, after: int) -> None:
    seen = 0

    def decide(route: Route) -> None:
        nonlocal seen
        seen += 1
        if seen <= after:
            route.continue_()
        else:
            route.fulfill(status=429, headers={"Retry-After": "1"}, json={"error": "busy", "message": "busy"})

    context.route("**/chunks/*", decide)


def take_all(browser: Browser, service: Service, run: str, folder: Path, scheme: Scheme) -> None:
    context = browser.new_context(viewport=DESK, color_scheme=scheme)
    page = context.new_page()
    places: dict[str, tuple[str, Callable[[], None]]] = {
        "runs": ("#/", lambda: expect(page.locator("table.runs tbody tr")).to_have_count(5)),
        "answers": (f"#/runs/{run}", lambda: expect(page.locator("#chart-4 svg")).to_be_visible()),
        "dataset": (f"#/data/{DATA_SET}", lambda: expect(page.locator(".calendar table")).to_have_count(3)),
        "questions": ("#/questions", lambda: expect(page.locator(".catalog article")).to_have_count(5)),
        "fleet": ("#/fleet", lambda: expect(page.locator(".node")).to_have_count(8)),
    }
    for name, (place, is_there) in places.items():
        page.goto(f"{service.url}/{place}")
        is_there()
        if name == "answers":
            page.locator("#answers").evaluate("heading => heading.scrollIntoView()")
        if name == "questions":
            page.get_by_role("button", name="Insert an example").click()
            expect(page.locator(".word .good")).to_be_visible()
        picture(page, folder / f"{name}-{scheme}.png")
    context.close()
    phone = browser.new_context(viewport=PHONE, color_scheme=scheme)
    page = phone.new_page()
    page.goto(f"{service.url}/#/runs/{run}")
    expect(page.locator("#chart-4 svg")).to_be_visible()
    picture(page, folder / f"phone-{scheme}.png")
    phone.close()


def picture(page: Page, path: Path) -> None:
    page.wait_for_timeout(400)  # bars are animated
    page.screenshot(path=path, animations="disabled")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
