"""Monitors on a real registry and bus, with a clock that stands still until told."""

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopitiam.bus.delivery import Courier
from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import Handler, Subscription
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    Answer,
    Coordinator,
    Heartbeat,
    Message,
)
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry import Fence, open_registry
from kopitiam.supervision.leadership import Watch
from kopitiam.supervision.monitor import Monitor
from kopitiam.supervision.services import ServiceWatch

BEAT, TIMEOUT = 1.0, 6.0
PACE = MonitorSection(heartbeat_seconds=BEAT, timeout_seconds=TIMEOUT)
NODES = NodesSection()
PATIENCE_SECONDS = 20


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.005)


class WatchedBus(MemoryBus):
    """Tells how far those who listen to heartbeats have come."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[Subscription, Message] = {}

    def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        def handle(message: Message) -> None:
            handler(message)
            if isinstance(message, Heartbeat):
                self._heard[subscription] = message

        subscription = super().subscribe(pattern, handle)
        return subscription

    def await_heartbeats(self, now: float) -> None:
        """All that were sent so far."""
        last = Heartbeat(node="nobody", kind="service", epoch=0, pid=0, url=None, sent_at=now)
        self.publish(HEARTBEAT_TOPIC, last)
        until(lambda: all(heard == last for heard in list(self._heard.values())))

    def _forget(self, courier: Courier) -> None:
        super()._forget(courier)
        self._heard.pop(courier, None)


class Services(ServiceWatch):
    """Those that it is told of; it tells when a monitor's thread has come by."""

    def __init__(self, told: list[NodeRecord]) -> None:
        super().__init__(dict, print, print, every_seconds=BEAT, patience_seconds=0, revive_limit=1)
        self._told = told
        self.passed: set[str] = set()

    def on_revived(self, name: str, now: float) -> None:
        self.passed.add(name)

    def nodes(self, now: float) -> list[NodeRecord]:
        return self._told


class Running:
    """A monitor on a thread of its own."""

    def __init__(self, monitor: Monitor, services: Services) -> None:
        self._monitor = monitor
        self._services = services
        self._marks = itertools.count()
        self._thread = threading.Thread(target=monitor.run, daemon=True)
        self._thread.start()

    def await_tick(self) -> None:
        """A whole one, with what came before it."""
        for _ in range(2):
            mark = f"mark-{next(self._marks)}"
            self._monitor.on_revived(mark)
            until(lambda mark=mark: mark in self._services.passed)

    def stop(self) -> None:
        self._monitor.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


class World:
    def __init__(self, home: Path) -> None:
        self.clock = Clock()
        self.bus = WatchedBus()
        self.registry = open_registry("sqlite", home, self.clock)
        self.heard: list[Message] = []
        self.revived: list[str] = []
        self.roster = NODES
        self.services: list[NodeRecord] = []
        self._monitors: dict[str, Running] = {}
        for topic in (ELECTION_TOPIC, HEARTBEAT_TOPIC):
            self.bus.subscribe(topic, self.heard.append)

    def start(self, name: str, registry: Any = None) -> None:
        place = Fence(name, self.registry.enlist(name, f"life of {name}", 1e6))
        services = Services(self.services)
        watch = Watch(
            place,
            lambda: self.roster,
            PACE,
            registry or self.registry,
            self.bus,
            self.revived.append,
            services,
        )
        self._monitors[name] = Running(Monitor(watch, self.clock, self.clock), services)

    def stop(self, name: str) -> None:
        self._monitors.pop(name).stop()

    def pass_time(self, seconds: float, beating: tuple[str, ...] = ()) -> None:
        """Second by second, each with its heartbeats and a whole tick of every monitor."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            for name in beating:
                self.beat(name)
            self.bus.await_heartbeats(self.clock())
            for monitor in self._monitors.values():
                monitor.await_tick()

    def pass_time_until(self, is_so: Callable[[], object], beating: tuple[str, ...] = ()) -> None:
        for _ in range(100):
            if is_so():
                return
            self.pass_time(1, beating)
        raise AssertionError("not within a hundred seconds")

    def beat(self, name: str, epoch: int = 1) -> None:
        kind, now = self.roster.kinds[name], self.clock()
        self.bus.publish(
            HEARTBEAT_TOPIC, Heartbeat(node=name, kind=kind, epoch=epoch, pid=100, url=None, sent_at=now)
        )

    def forget_heard(self) -> None:
        """Also what is still on its way."""
        last = Answer(sender=0, to=0)
        self.bus.publish(ELECTION_TOPIC, last)
        until(lambda: last in self.heard)
        self.heard.clear()

    def leader(self) -> tuple[str, int] | None:
        """Whoever last said so, and under which epoch."""
        said = [message for message in self.heard if isinstance(message, Coordinator)]
        return (NODES.monitors[said[-1].sender - 1], said[-1].epoch) if said else None

    def nodes(self) -> dict[str, NodeRecord]:
        return {node.name: node for node in self.registry.nodes()}

    def close(self) -> None:
        for monitor in self._monitors.values():
            monitor.stop()
        self.bus.close()
        self.registry.close()
