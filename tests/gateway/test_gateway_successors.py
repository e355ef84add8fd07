"""Two processes under one gateway name: the successor serves, and the earlier one has no effect."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from gateway_client import GatewayClient, eventually

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, Settings
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.context import Gateway
from kopitiam.registry import Fence, Registry, open_registry

KOPI = Path(sys.executable).with_name("kopi")
NAME = "gateway-1"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[[int], Gateway]]:
    """Open the same gateway once more, under the next epoch."""
    settings = Settings(home=tmp_path / "home", gateway=GatewaySection(listen="127.0.0.1:0"))
    begun: list[Gateway] = []
    with closing(open_registry("sqlite", settings.home)) as registry, closing(MemoryBus()) as bus:

        def lives(epoch: int) -> Gateway:
            begun.append(open_gateway(Fence(NAME, epoch, f"life {epoch}"), settings, registry, bus))
            return begun[-1]

        yield lives
        for gateway in begun:
            close_gateway(gateway)


def test_closing_keeps_the_incoming_folder_of_the_successor(live) -> None:
    earlier, later = live(1), live(2)
    (later.incoming / "under-way.body").write_bytes(b"x")
    close_gateway(earlier)
    assert (later.incoming / "under-way.body").is_file()


def test_opening_removes_incoming_folders_of_earlier_epochs_only(live) -> None:
    earlier, later = live(9), live(11)
    assert not earlier.incoming.exists()
    between = live(10)  # opened before the later one, and frozen until now
    assert later.incoming.is_dir()
    assert between.incoming.is_dir()


def test_closing_the_last_gateway_removes_its_folder(live) -> None:
    gateway = live(1)
    close_gateway(gateway)
    assert list(gateway.home.incoming.iterdir()) == []


class Node:
    """`kopi gateway` on a free port, in its own process."""

    def __init__(self, home: Path, bus: str, listen: str = "127.0.0.1:0") -> None:
        self.home = home
        environment = {
            "KOPI_HOME": str(home),
            "KOPI_BUS__URL": bus,
            "KOPI_GATEWAY__LISTEN": listen,
            "KOPI_MONITOR__HEARTBEAT_SECONDS": "0.5",
        }
        self.popen = subprocess.Popen(
            [KOPI, "gateway", "--name", NAME],
            env=os.environ | environment,
            cwd=home.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def connect(self, registry: Registry) -> GatewayClient:
        def url() -> str | None:
            assert self.popen.poll() is None, self.popen.stderr and self.popen.stderr.read()
            return next((node.url for node in registry.nodes() if node.pid == self.popen.pid), None)

        return GatewayClient(eventually(url, 60), self.home)

    def last_words(self) -> tuple[int, str]:
        _, words = self.popen.communicate(timeout=60)
        return self.popen.returncode, words


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with closing(open_registry("sqlite", tmp_path / "home")) as opened:
        yield opened


@pytest.fixture
def begin(tmp_path: Path, rabbitmq) -> Iterator[Callable[..., Node]]:
    begun: list[Node] = []

    def beginning(**options: str) -> Node:
        begun.append(Node(tmp_path / "home", rabbitmq.url, **options))
        return begun[-1]

    yield beginning
    for node in begun:
        node.popen.kill()
        node.popen.communicate()


def test_a_frozen_gateway_that_wakes_beside_its_successor_exits_without_effect(begin, registry) -> None:
    frozen = begin()
    run = frozen.connect(registry).open_run()
    frozen.popen.send_signal(signal.SIGSTOP)
    successor = begin().connect(registry)
    assert successor.put(run, 0).status_code == 201

    frozen.popen.send_signal(signal.SIGCONT)
    code, words = frozen.last_words()
    assert code == 1, words
    assert f"kopi: {NAME}: another process has taken its lease; epoch 1 is stale\n" in words
    assert successor.put(run, 1).status_code == 201
    assert successor.http.get("/readyz").status_code == 200
    assert [(node.state, node.epoch) for node in registry.nodes()] == [("alive", 2)]


@pytest.mark.long
def test_a_second_gateway_on_a_port_in_use_does_not_take_over_the_lease(begin, registry) -> None:
    first = begin().connect(registry)
    code, words = begin(listen=first.url.removeprefix("http://")).last_words()
    assert (code, "cannot listen on" in words) == (2, True), words
    assert [(node.state, node.epoch) for node in registry.nodes()] == [("alive", 1)]
    assert registry.take_over(NAME, "asked by a test", 1) == 2, "the place was taken"
