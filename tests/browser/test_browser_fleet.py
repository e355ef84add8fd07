"""A page whose gateway is gone goes on with another gateway of the fleet."""

import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Route, expect
from visits import BareGateway, Visit

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, Settings
from kopitiam.contracts.messages import NodeRecord
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.server import serving
from kopitiam.registry import Fence, Registry, open_registry
from waiting import eventually

LEARNT = "() => performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/api/v1/nodes'))"


class Pair:
    """Two gateways with one registry, as on two machines; the first one can be stopped."""

    def __init__(self, home: Path, registry: Registry) -> None:
        self.home, self.registry = home, registry
        self._first = contextlib.ExitStack()
        self._both = contextlib.ExitStack()
        self.urls = [self._serve("gateway-1", self._first), self._serve("gateway-2", self._both)]

    def stop_first(self) -> None:
        self._first.close()

    def close(self) -> None:
        self._first.close()
        self._both.close()

    def is_sealed(self, run: str) -> bool:
        return str(self.registry.get_run(run).state) != "open"

    def _serve(self, name: str, stack: contextlib.ExitStack) -> str:
        settings = Settings(home=self.home, gateway=GatewaySection(listen="127.0.0.1:0"))
        bus = stack.enter_context(closing(MemoryBus()))
        gateway = open_gateway(Fence(name, 1, "a life"), settings, self.registry, bus)
        stack.callback(close_gateway, gateway)
        url = stack.enter_context(serving(gateway))
        self.registry.report_node(NodeRecord(name, "gateway", 1, url, "alive", self.registry.now(), 1))
        return url


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    home = tmp_path / "home"
    with closing(open_registry("sqlite", home)) as registry, closing(Pair(home, registry)) as pair:
        yield pair


@pytest.mark.parametrize("fault", [pytest.param("stopped", marks=pytest.mark.long), "cut off"])
def test_an_upload_goes_on_with_another_gateway(
    fault: str, pair: Pair, context: BrowserContext, tiny_folder: Path
) -> None:
    first, second = pair.urls
    visit = Visit(context.new_page(), BareGateway(pair.home, first))
    visit.expects_failed_requests = True
    visit.open("#/upload")
    visit.page.wait_for_function(LEARNT)
    visit.choose(tiny_folder)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    context.route(f"{first}/**/chunks/*", hold)  # the first chunks are on their way
    run = visit.start("Moved")
    eventually(lambda: visit.page.evaluate("1") and held)
    if fault == "stopped":
        pair.stop_first()
        for route in held:
            route.abort("connectionrefused")
    else:
        context.route(f"{first}/**", hold)  # nothing is answered any more, and nothing refused
    eventually(lambda: visit.page.evaluate("1") and pair.is_sealed(run))
    expect(visit.page.locator("#warning")).to_be_hidden()
    visit.page.get_by_role("link", name="Fleet").click()
    expect(visit.page.locator(".node", has_text="gateway-2")).to_be_visible()
    used = {request.url.partition("/api/")[0] for request in visit.requests if "/chunks/" in request.url}
    assert used == {first, second}
    assert visit.console_messages == []
