"""One `kopi serve` with tokens and one browser for all tests; a tab of its own for each."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext
from visits import ANNA, BEN, Visit

from acceptance.services import ENVIRONMENT, Service
from kopitiam.contracts.questions import Questions
from kopitiam.verification import expected_answers

from chromium import NoBrowser, chromium  # isort: skip
from debian import skip_or_fail  # isort: skip

Rows = list[tuple[str, ...]]
SETTINGS = {
    "KOPI_GATEWAY__TOKENS": json.dumps({"anna": ANNA, "ben": BEN}),
    "KOPI_PIPELINE__SHARDS": "2",
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # no time spent on the better compiler
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Without one a test is skipped, but fails where CI is set."""
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


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened.set_default_timeout(20_000)
    yield opened
    opened.close()


@pytest.fixture
def visit(context: BrowserContext, service: Service) -> Iterator[Visit]:
    """A visitor with a token. What the page asks of others, or complains of, fails the test in the end."""
    visitor = Visit(context.new_page(), service)
    yield visitor
    visitor.require_quiet()


@pytest.fixture(scope="session")
def expected(tiny_folder: Path) -> dict[str, Rows]:
    """The answers about the tiny folder as `kopi verify` computes them."""
    return expected_answers(tiny_folder, Questions())
