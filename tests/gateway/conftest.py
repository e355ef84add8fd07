"""Fixtures: one shared gateway, gateways with limits of a test, and gateways in processes of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gateway_client import GatewayClient
from gateways import GatewayProcess, Served, served

from contract.conftest import postgresql, postgresql_url, rabbitmq  # noqa: F401 - fixtures


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("shared") / "home") as one:
        yield one


@pytest.fixture
def client(shared: Served) -> GatewayClient:
    """A client of the shared gateway; each test opens its own run."""
    return shared.client


@pytest.fixture
def run(client: GatewayClient) -> str:
    return client.open_run()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start a gateway for this test, with the given limits."""
    with ExitStack() as stack:

        def serve_with(**limits: Any) -> Served:
            return stack.enter_context(served(limits.pop("home", tmp_path / "home"), **limits))

        yield serve_with


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """Start a gateway in its own process; `connect()` waits for it."""
    started: list[GatewayProcess] = []

    def starting(name: str = "gateway-1", home: Path | None = None, **environment: str) -> GatewayProcess:
        started.append(GatewayProcess(home or tmp_path / "home", name, environment))
        return started[-1]

    yield starting
    for process in started:
        process.popen.kill()
        process.popen.wait()
        if process.popen.stdout:
            process.popen.stdout.close()
