"""PostgreSQL behind a network that loses packets, and one that is frozen: how long a call then takes.

The server has a network namespace of its own, so that packets are really lost, by rules that touch nothing
else on the machine. That takes root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from debian import can_install, install, skip_or_fail
from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.fleet.services.postgresql import account_for, find_binaries
from kopitiam.registry import Registry, open_registry

LIMIT_SECONDS = 20.0
START_SECONDS = 30.0
PORT = 5432
TOOLS = {"ip": "iproute2", "nft": "nftables"}


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def has_tools() -> bool:
    return all(shutil.which(tool) for tool in TOOLS)


@dataclass(frozen=True)
class Remote:
    """A PostgreSQL on the other side of a network that can be cut."""

    namespace: str
    url: str
    data: Path

    @contextlib.contextmanager
    def lost(self, *directions: str) -> Iterator[None]:
        """Packets that come in to the server, that go out from it, or both."""
        rules = [
            f"add chain inet cut {direction} {{ type filter hook {direction}put priority 0; policy drop; }}"
            for direction in directions
        ]
        self._nft("; ".join(["add table inet cut", *rules]))
        try:
            yield
        finally:
            self._nft("delete table inet cut")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process of the server is stopped; its kernel still acknowledges packets."""
        processes = [p for p in psutil.process_iter() if self._is_ours(p)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.cwd() == str(self.data)
        except psutil.Error:
            return False

    def _nft(self, rules: str) -> None:
        run("ip", "netns", "exec", self.namespace, "nft", rules)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    if os.geteuid() != 0:
        skip_or_fail("packets are lost in a network namespace, which takes root")
    if not has_tools() and can_install():
        install(*TOOLS.values(), is_there=has_tools)
    name = f"kopi{uuid.uuid4().hex[:8]}"
    try:
        run("ip", "netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        skip_or_fail(f"no network namespace can be made: {error}")
    yield name
    run("ip", "netns", "delete", name)  # its end of the pair goes with it, and so the pair


@pytest.fixture(scope="module")
def remote(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    tail = namespace.removeprefix("kopi")
    near, far, subnet = f"kn{tail}", f"kf{tail}", f"10.{int(tail[:2], 16)}.{int(tail[2:4], 16)}"
    inside = ("ip", "netns", "exec", namespace)
    run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
    run("ip", "link", "set", far, "netns", namespace)
    run("ip", "addr", "add", f"{subnet}.1/24", "dev", near)
    run("ip", "link", "set", near, "up")
    run(*inside, "ip", "addr", "add", f"{subnet}.2/24", "dev", far)
    run(*inside, "ip", "link", "set", far, "up")
    run(*inside, "ip", "link", "set", "lo", "up")

    data = tmp_path_factory.mktemp("postgresql") / "data"
    binaries, account = find_binaries(data), account_for(data)
    data.mkdir(mode=0o700)
    account.own(data)
    initdb, server = binaries / "initdb", binaries / "postgres"
    making = (str(initdb), "--auth=trust", "--username=kopitiam", "--no-sync", f"--pgdata={data}")
    subprocess.run(account.command(making, needed=(data, initdb)), cwd="/", check=True, capture_output=True)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {subnet}.0/24 trust\n")
    options = {"listen_addresses": f"{subnet}.2", "port": PORT, "unix_socket_directories": "", "fsync": "off"}
    options |= {"dynamic_shared_memory_type": "mmap"}
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = account.command((str(server), "-D", str(data), *settings), needed=(data, server))
    with (data.parent / "log").open("w") as log:
        process = subprocess.Popen([*inside, *command], cwd="/", stdout=log, stderr=log)
        remote_server = Remote(namespace, f"postgresql://kopitiam@{subnet}.2:{PORT}/postgres", data)
        try:
            await_answer(remote_server.url)
            yield remote_server
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown, which waits for no client
            process.wait(START_SECONDS)


def await_answer(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "PostgreSQL did not start"


@pytest.fixture
def registry(remote: Remote, tmp_path: Path) -> Iterator[Registry]:
    """A registry with a connection that was used before."""
    registry = open_registry(remote.url, tmp_path)
    registry.check()
    yield registry
    registry.close()


def open_a_run(registry: Registry) -> str:
    return registry.open_run({}, "", "anna", idempotency_key=None, lease_seconds=60, shards=1).run.run


def seconds_of(call: Callable[[], object], what: str) -> float:
    """The call must fail as unavailable; how long that took is shown by `pytest -rP`."""
    begun = time.monotonic()
    with pytest.raises(RegistryUnavailable, match=r"^registry: ") as failure:
        call()
    took = time.monotonic() - begun
    print(f"{what}: {took:.1f} s, {failure.value}")  # noqa: T201
    return took


def longest_of(registry: Registry, what: str) -> float:
    """The longest of concurrent calls of every kind, more calls than connections in the pool."""
    run = "r" * 16
    calls: list[Callable[[], object]] = [
        registry.check,
        registry.nodes,
        lambda: open_a_run(registry),
        lambda: registry.get_run(run),
        lambda: registry.acquire_lease("leader", "anna", 10),
    ] * 4
    with ThreadPoolExecutor(len(calls)) as threads:
        return max(threads.map(lambda call: seconds_of(call, what), calls))


@pytest.mark.parametrize("directions", [("in", "out"), ("in",), ("out",)], ids="+".join)
@pytest.mark.long
def test_no_call_outlives_twenty_seconds_when_packets_are_lost(
    registry: Registry, remote: Remote, directions: tuple[str, ...]
) -> None:
    """Calls use an idle connection, and open new ones."""
    with remote.lost(*directions):
        assert longest_of(registry, f"packets lost {directions}") < LIMIT_SECONDS
    assert registry.get_run(open_a_run(registry)).owner == "anna"


@pytest.mark.parametrize("directions", [("in", "out"), ("out",)], ids="+".join)
@pytest.mark.long
def test_a_call_that_the_network_cuts_in_the_middle_ends_in_time(
    registry: Registry, remote: Remote, directions: tuple[str, ...]
) -> None:
    with waiting_on_the_server(registry, remote, lambda: remote.lost(*directions)) as call:
        assert seconds_of(call, f"cut in the middle {directions}") < LIMIT_SECONDS
    registry.check()


@pytest.mark.long
def test_no_call_outlives_twenty_seconds_when_the_server_is_frozen(
    registry: Registry, remote: Remote
) -> None:
    with remote.frozen():
        assert longest_of(registry, "frozen") < LIMIT_SECONDS
    registry.check()


@pytest.mark.long
def test_a_call_in_whose_middle_the_server_freezes_ends_in_time(registry: Registry, remote: Remote) -> None:
    with waiting_on_the_server(registry, remote, remote.frozen) as call:
        assert seconds_of(call, "frozen in the middle") < LIMIT_SECONDS
    registry.check()


@pytest.mark.long
def test_an_unreachable_server_is_reported_in_time_at_the_start(remote: Remote, tmp_path: Path) -> None:
    with remote.lost("in", "out"):
        assert seconds_of(lambda: open_registry(remote.url, tmp_path), "opened") < LIMIT_SECONDS


@contextlib.contextmanager
def waiting_on_the_server(
    registry: Registry, remote: Remote, failure: Callable[[], AbstractContextManager[None]]
) -> Iterator[Callable[[], object]]:
    """A call that waits for a lock on the server when the failure begins, which lasts for the block."""
    run = open_a_run(registry)
    with (
        psycopg.connect(remote.url) as other,
        psycopg.connect(remote.url, autocommit=True) as admin,
        contextlib.ExitStack() as stack,
    ):
        other.execute("SELECT 1 FROM runs WHERE run = %s FOR UPDATE", (run,))

        def strike() -> None:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not admin.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                assert time.monotonic() < deadline
            stack.enter_context(failure())

        striking = threading.Thread(target=strike)
        striking.start()
        yield lambda: registry.renew_lease(run, 60)
        striking.join()
