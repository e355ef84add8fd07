"""Fixtures: one browser with a tab per test, a `kopi serve` with tokens, and a gateway without a pipeline."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from visits import ANNA, BEN, BareGateway, Visit

from acceptance.services import ENVIRONMENT, Service
from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, Settings
from kopitiam.contracts.parameters import Parameters
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.server import serving
from kopitiam.registry import Fence, open_registry
from kopitiam.verification import expected_answers

from chromium import NoBrowser, chromium  # isort: skip
from debian import skip_or_fail  # isort: skip

expect.set_options(timeout=20_000)  # a busy machine starts the first chart worker slowly
Rows = list[tuple[str, ...]]
SETTINGS = {
    "KOPI_GATEWAY__TOKENS": json.dumps({"anna": ANNA, "ben": BEN}),
    "KOPI_PIPELINE__SHARDS": "2",
    "KOPI_PIPELINE__WARM_UP": "false",
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # no time spent on the better compiler
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser. Without one a test is skipped, or fails if CI is set."""
    try:
        with chromium() as found:
            yield found
    except (NoBrowser, subprocess.SubprocessError) as error:
        skip_or_fail(f"no browser: {error}")


@pytest.fixture(scope="session")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(tmp_path_factory.mktemp("dashboard") / "home", ENVIRONMENT | SETTINGS)
    served.http.headers["Authorization"] = f"Bearer {ANNA}"
    served.start()
    yield served
    served.end()


@pytest.fixture(scope="session")
def bare_gateway(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareGateway]:
    home = tmp_path_factory.mktemp("bare_gateway") / "home"
    settings = Settings(home=home, gateway=GatewaySection(listen="127.0.0.1:0"))
    with closing(open_registry("sqlite", home)) as registry, closing(MemoryBus()) as bus:
        gateway = open_gateway(Fence("gateway-1", 1, "a life"), settings, registry, bus)
        try:
            with serving(gateway) as url:
                yield BareGateway(home, url)
        finally:
            close_gateway(gateway)


@pytest.fixture
def guest(context: BrowserContext, bare_gateway: BareGateway) -> Iterator[Visit]:
    """A visitor of the gateway without a pipeline."""
    visitor = Visit(context.new_page(), bare_gateway)
    yield visitor
    visitor.require_quiet()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened.set_default_timeout(20_000)
    yield opened
    opened.close()


@pytest.fixture
def visit(context: BrowserContext, service: Service) -> Iterator[Visit]:
    """A visitor with a token. Requests to other hosts and messages on the console fail the test."""
    visitor = Visit(context.new_page(), service)
    yield visitor
    visitor.require_quiet()


@pytest.fixture(scope="session")
def expected(tiny_folder: Path) -> dict[str, Rows]:
    """The answers about the tiny folder, as `kopi verify` computes them."""
    return expected_answers(tiny_folder, Parameters())
