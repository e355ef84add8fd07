"""What the page shows when the gateway is away, frozen or refuses a request."""

import contextlib
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Route, expect
from prepared_runs import write_done_run
from visits import Visit

from acceptance.services import Service
from made_answers import small_answers

EVERYTHING = "**/*"
LOADED = "file => performance.getEntriesByType('resource').some(({ name }) => name.endsWith(file))"
BEYOND_PATIENCE_MS = 45_000


@pytest.fixture
def answered(service: Service) -> str:
    return write_done_run(service.home, "Answered", small_answers())


@pytest.fixture
def opened(service: Service) -> Iterator[str]:
    """An open run."""
    run = service.http.post("/api/v1/runs", json={"label": "Waiting"}).json()["run"]
    yield run
    service.http.delete(f"/api/v1/runs/{run}")


def refuse(route: Route) -> None:
    route.abort("connectionrefused")


@contextlib.contextmanager
def frozen(service: Service) -> Iterator[None]:
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        service.process.send_signal(signal.SIGCONT)


def test_every_page_opens_while_the_gateway_is_away(visit: Visit, context: BrowserContext) -> None:
    visit.enter()
    visit.page.wait_for_function(LOADED, arg="pages/fleet.js")
    visit.expects_failed_requests = True
    context.route(EVERYTHING, refuse)
    visit.page.get_by_role("link", name="Fleet").click()
    expect(visit.page.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(visit.page.locator("#warning")).to_contain_text("does not answer")
    context.unroute(EVERYTHING)
    expect(visit.page.locator("#warning")).to_be_hidden()
    expect(visit.page.locator(".node", has_text="gateway-1")).to_be_visible()


def test_a_page_that_failed_to_load_is_shown_when_the_gateway_is_back(
    visit: Visit, context: BrowserContext
) -> None:
    visit.expects_failed_requests = True
    for file in ("**/pages/fleet.js", "**/readyz"):
        context.route(file, refuse)
    visit.enter("#/fleet")
    expect(visit.page.get_by_role("heading", name="This did not work")).to_be_visible()
    expect(visit.page.locator("#warning")).to_be_visible()
    for file in ("**/pages/fleet.js", "**/readyz"):
        context.unroute(file)
    expect(visit.page.locator(".node", has_text="gateway-1")).to_be_visible()


def test_a_502_of_a_proxy_is_shown_as_an_unreachable_gateway(visit: Visit, context: BrowserContext) -> None:
    visit.enter()
    visit.expects_failed_requests = True
    context.route(EVERYTHING, lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    expect(visit.page.locator("#warning")).to_contain_text("does not answer")
    context.unroute(EVERYTHING)
    expect(visit.page.locator("#warning")).to_be_hidden()


def test_a_frozen_gateway_is_shown_as_unreachable(visit: Visit, service: Service, opened: str) -> None:
    visit.expects_failed_requests = True
    visit.page.clock.install()
    visit.enter(f"#/runs/{opened}")
    expect(visit.page.locator(".title .badge")).to_have_text("Uploading")
    with frozen(service):
        visit.page.clock.fast_forward(BEYOND_PATIENCE_MS)
        expect(visit.page.locator("#warning")).to_contain_text("does not answer")
    expect(visit.page.locator("#warning")).to_be_hidden()


def test_a_failed_force_end_shows_its_reason(visit: Visit, opened: str) -> None:
    visit.expects_failed_requests = True
    visit.enter(f"#/runs/{opened}")
    expect(visit.page.locator(".title .badge")).to_have_text("Uploading")
    problem = {"error": "internal", "message": "the disk is full"}
    visit.page.route(f"**/runs/{opened}", lambda route: route.fulfill(status=500, json=problem))
    visit.page.get_by_role("button", name="End this run").click()
    visit.page.get_by_role("button", name="End it").click()
    expect(visit.page.get_by_role("alert").filter(has_text="could not be ended")).to_contain_text(
        "disk is full"
    )
    expect(visit.page.locator(".title .badge")).to_have_text("Uploading")


def test_a_failed_download_is_shown_until_it_succeeds(visit: Visit, answered: str) -> None:
    visit.expects_failed_requests = True
    visit.enter(f"#/runs/{answered}")
    flaw = visit.page.get_by_role("status").filter(has_text="could not be downloaded")
    take = visit.page.locator("#answer-3").get_by_role("button", name="Parquet")
    visit.page.route("**/results/3.parquet", refuse)
    take.click()
    expect(flaw).to_contain_text("results_query_3.parquet")
    visit.page.unroute("**/results/3.parquet")
    assert visit.saved(take.click)[:4] == b"PAR1"
    expect(flaw).to_have_count(0)
