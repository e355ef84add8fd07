"""The services of a fleet as real processes: killed, started again on the same port and data, and stopped."""

import contextlib
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from kopitiam.bus import open_bus
from kopitiam.bus.port import BusPort
from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.messages import BarrierForward, Message
from kopitiam.fleet.services import find_service, probes, service_settings
from kopitiam.registry import open_registry
from kopitiam.system.settings import load_settings
from processes import is_alive
from rabbitmq_server import ensure_installed
from waiting import eventually

SERVICES = ("postgresql", "rabbitmq")
FORWARD = BarrierForward(run="0123456789abcdef", epoch=1)


class Fleet:
    """Services on a private home, started by the command that an operator or a monitor runs."""

    def __init__(self, folder: Path, kopi: Callable[..., Any]) -> None:
        self.home = folder / "home"
        self.config = folder / "fleet.toml"
        self.config.write_text(f'home = "{self.home}"\n[nodes]\nservices = {json.dumps(SERVICES)}\n')
        self._kopi = kopi

    def do(self, *words: str) -> Any:
        done = self._kopi(*words, "--config", self.config, "--json")
        assert (done.code, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def settings(self) -> Settings:
        return service_settings(load_settings(self.config))

    def answers(self, name: str) -> bool:
        return probes(load_settings(self.config))[name]()

    def processes(self) -> list[psutil.Process]:
        """Return all processes that refer to the home in their command line, environment or folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                told = [*process.cmdline(), process.cwd(), *process.environ().values()]
                is_other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
                if is_other and any(str(self.home) in word for word in told):
                    found.append(process)
        return found


@pytest.fixture
def fleet(tmp_path: Path, kopi: Callable[..., Any]) -> Iterator[Fleet]:
    made = Fleet(tmp_path, kopi)
    yield made
    for name in SERVICES:
        find_service(name, load_settings(made.config)).stop()
    for process in made.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture(scope="module")
def rabbitmq_is_there() -> None:
    ensure_installed()


def received(bus: BusPort, queue: str) -> Message:
    got: list[Message] = []
    consuming = bus.consume(queue, got.append)
    eventually(lambda: bool(got))
    consuming.cancel()
    return got[0]


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def port_of(url: str) -> int:
    return int(url.rpartition("@")[2].partition("/")[0].rpartition(":")[2])


def abandoned_memory() -> set[str]:
    """Return shared memory segments that no process uses any more."""
    maps = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            maps.append(Path(f"/proc/{process.pid}/maps").read_text())
    return {path.name for path in Path("/dev/shm").glob("*") if not any(str(path) in each for each in maps)}


def kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    eventually(lambda: not is_alive(process))


@pytest.mark.long
def test_postgresql_comes_back_on_the_same_port_with_the_same_data(fleet: Fleet) -> None:
    before = abandoned_memory()
    first = fleet.do("node", "start", "postgresql")
    assert first["started"]
    url = find_service("postgresql", load_settings(fleet.config)).url()
    assert url is not None
    with psycopg.connect(url, autocommit=True) as client:
        client.execute("CREATE TABLE cups (n integer)")
        client.execute("INSERT INTO cups VALUES (1), (2)")
        settings = client.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        assert settings.fetchone() == ("on", "on")
        kill(first["pid"])
    assert not fleet.answers("postgresql")
    assert fleet.do("node", "status", "postgresql")["state"] == "dead"

    second = fleet.do("node", "start", "postgresql")
    assert second["started"]
    assert second["pid"] != first["pid"]
    assert find_service("postgresql", load_settings(fleet.config)).url() == url
    with contextlib.closing(psycopg.connect(url)) as client:
        assert client.execute("SELECT sum(n) FROM cups").fetchone() == (3,)
        assert fleet.do("node", "start", "postgresql") == {
            "name": "postgresql", "pid": second["pid"], "started": False
        }  # fmt: skip
        assert fleet.do("node", "stop", "postgresql")["stopped"]  # with a client still there
    assert fleet.processes() == []
    assert is_free(port_of(url))
    eventually(lambda: abandoned_memory() <= before)
    assert not (fleet.home / "nodes" / "postgresql.json").exists()


@pytest.mark.long
def test_postgresql_requires_its_password_and_does_not_reveal_it(fleet: Fleet) -> None:
    fleet.do("node", "start", "postgresql")
    folder = fleet.home / "services" / "postgresql"
    assert stat.S_IMODE((folder / "address.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["address.json", "data", "hosts.conf"]
    url = json.loads((folder / "address.json").read_text())["url"]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url.replace("kopitiam:", "kopitiam:x"))
    shown = fleet.do("node", "status", "postgresql")
    assert (shown["state"], shown["url"]) == ("alive", f"postgresql://127.0.0.1:{port_of(url)}")


@pytest.mark.long
def test_postgresql_starts_despite_a_stale_lock_file(fleet: Fleet) -> None:
    first = fleet.do("node", "start", "postgresql")
    kill(first["pid"])
    eventually(lambda: fleet.processes() == [])
    lock = fleet.home / "services" / "postgresql" / "data" / "postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))
    assert fleet.do("node", "start", "postgresql")["started"]


@pytest.mark.long
def test_a_frozen_postgresql_is_killed_and_started_again(fleet: Fleet) -> None:
    first = fleet.do("node", "start", "postgresql")
    os.kill(first["pid"], signal.SIGSTOP)
    assert not fleet.answers("postgresql")
    second = fleet.do("node", "start", "postgresql")
    assert (second["started"], second["pid"] != first["pid"]) == (True, True)
    assert fleet.answers("postgresql")


@pytest.mark.long
def test_an_incomplete_data_folder_is_created_again(fleet: Fleet) -> None:
    unfinished = fleet.home / "services" / "postgresql" / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("1")
    assert fleet.do("node", "start", "postgresql")["started"]
    assert not unfinished.exists()


@pytest.mark.long
@pytest.mark.usefixtures("rabbitmq_is_there")
def test_rabbitmq_comes_back_on_the_same_port_with_the_same_messages(fleet: Fleet) -> None:
    first = fleet.do("node", "start", "rabbitmq")
    assert first["started"]
    url = find_service("rabbitmq", load_settings(fleet.config)).url()
    assert url is not None
    address = fleet.home / "services" / "rabbitmq" / "address.json"
    assert stat.S_IMODE(address.stat().st_mode) == 0o600
    with contextlib.closing(open_bus(url, "f1")) as bus:
        bus.send("kept", FORWARD)
        assert received(bus, "kept") == FORWARD
        bus.send("kept", FORWARD)
    time.sleep(1.5)  # RabbitMQ 3.10 writes down that a queue exists up to a second after it confirms it
    kill(first["pid"])
    assert not fleet.answers("rabbitmq")

    second = fleet.do("node", "start", "rabbitmq")
    assert (second["started"], second["pid"] != first["pid"]) == (True, True)
    assert find_service("rabbitmq", load_settings(fleet.config)).url() == url
    with contextlib.closing(open_bus(url, "f1")) as bus:
        assert received(bus, "kept") == FORWARD
    assert fleet.do("node", "stop", "rabbitmq")["stopped"]
    assert fleet.processes() == []
    assert is_free(port_of(url))
    assert not list((fleet.home / "services" / "rabbitmq").glob("*.pid"))
    assert not (fleet.home / "nodes" / "rabbitmq.json").exists()


@pytest.mark.long
@pytest.mark.usefixtures("rabbitmq_is_there")
def test_both_services_are_found_by_the_settings_and_stop_together(fleet: Fleet) -> None:
    for name in SERVICES:
        fleet.do("node", "start", name)
    settings = fleet.settings()
    with contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry:
        registry.check()
    with contextlib.closing(open_bus(settings.bus.url, "f1")) as bus:
        bus.check()
    states = {node["name"]: node["state"] for node in fleet.do("cluster", "status")}
    assert states == {
        "gateway-1": "stopped",
        "pipeline-1": "stopped",
        "monitor-1": "stopped",
        "monitor-2": "stopped",
        "monitor-3": "stopped",
        "postgresql": "alive",
        "rabbitmq": "alive",
    }
    assert fleet.do("cluster", "down")["stopped"] == ["rabbitmq", "postgresql"]
    assert fleet.processes() == []
    assert sorted(path.name for path in fleet.home.iterdir()) == ["logs", "services"]
    assert fleet.do("cluster", "down")["stopped"] == []


@pytest.mark.long
@pytest.mark.usefixtures("rabbitmq_is_there")
def test_services_get_the_passwords_and_ports_of_a_secret_and_keep_their_data(fleet: Fleet) -> None:
    for name in SERVICES:
        fleet.do("node", "start", name)
    before = fleet.settings()
    with contextlib.closing(open_registry(before.registry.url, before.home)) as registry:
        identity = registry.identity().id
    with contextlib.closing(open_bus(before.bus.url, identity)) as bus:
        bus.send("kept", FORWARD)
    assert fleet.do("cluster", "down")["stopped"] == ["rabbitmq", "postgresql"]

    ports = f"{{ postgresql = {free_port()}, rabbitmq = {free_port()} }}"
    with fleet.config.open("a") as config:
        config.write(f'[services]\nlisten = "0.0.0.0"\nsecret = "{"s" * 16}"\nports = {ports}\n')
    for name in SERVICES:
        fleet.do("node", "start", name)
    after = fleet.settings()
    assert (after.registry.url != before.registry.url, after.bus.url != before.bus.url) == (True, True)
    with contextlib.closing(open_registry(after.registry.url, after.home)) as registry:
        assert registry.identity().id == identity
    with contextlib.closing(open_bus(after.bus.url, identity)) as bus:
        assert received(bus, "kept") == FORWARD
    for start, old, new in (
        (lambda url: open_registry(url, after.home), before.registry.url, after.registry.url),
        (lambda url: open_bus(url, identity), before.bus.url, after.bus.url),
    ):
        with pytest.raises(ServiceError, match=r"password authentication failed|password refused"):
            start(new.replace(str(urlsplit(new).password), str(urlsplit(old).password)))


@pytest.mark.long
def test_without_rabbitmq_one_line_says_what_to_install(
    fleet: Fleet, kopi: Callable[..., Any], environment: dict[str, str], tmp_path: Path
) -> None:
    if Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        environment |= {"PATH": str(tmp_path)}  # the server is known by its place, its port mapper is not
    refused = kopi("node", "start", "rabbitmq", "--config", fleet.config, env=environment)
    assert (refused.code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "apt-get install --no-install-recommends rabbitmq-server" in refused.stderr
    assert fleet.processes() == []
