"""Monitors on a real registry and bus, with a clock that stands still until told."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kopitiam.bus.delivery import HandlerThread
from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import Handler, Subscription
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    ElectionAnswer,
    Heartbeat,
    LeaderAnnouncement,
    Message,
    NodeRecord,
    Stopped,
)
from kopitiam.registry import Fence, open_registry
from kopitiam.supervision.leadership import MonitorContext
from kopitiam.supervision.monitor import Monitor
from kopitiam.supervision.service_watch import ServiceWatch
from waiting import PATIENCE_SECONDS, eventually

BEAT, TIMEOUT = 1.0, 6.0
PACE = MonitorSection(heartbeat_seconds=BEAT, timeout_seconds=TIMEOUT)
NODES = NodesSection()
FOR_LONG = 1e6
NOBODY = "nobody"


def is_mark(message: Message) -> bool:
    """Whether it is there only to show that all messages before it have been handled."""
    return (isinstance(message, ElectionAnswer) and message.sender == 0) or (
        isinstance(message, Stopped) and message.node == NOBODY
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class WatchedBus(MemoryBus):
    """Knows how far each subscriber has come, by marks that are published among the messages."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[Subscription, tuple[str, set[Message]]] = {}  # pattern and the marks handled
        self._marks = itertools.count(1)

    def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        passed: set[Message] = set()

        def handle(message: Message) -> None:
            if is_mark(message):
                passed.add(message)
            else:
                handler(message)

        subscription = super().subscribe(pattern, handle)
        self._passed[subscription] = (pattern, passed)
        return subscription

    def subscribers(self, topic: str) -> list[set[Message]]:
        return [passed for pattern, passed in list(self._passed.values()) if pattern == topic]

    def await_delivery(self) -> None:
        """Until all subscribers have handled all heartbeats and election messages published so far."""
        number = next(self._marks)
        for topic, mark in (
            (HEARTBEAT_TOPIC, Stopped(node=NOBODY, epoch=number)),
            (ELECTION_TOPIC, ElectionAnswer(sender=0, to=number)),
        ):
            awaited = self.subscribers(topic)
            self.publish(topic, mark)
            eventually(lambda awaited=awaited, mark=mark: all(mark in passed for passed in awaited))

    def _forget(self, courier: HandlerThread) -> None:
        super()._forget(courier)
        self._passed.pop(courier, None)


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
            eventually(lambda mark=mark: mark in self._services.passed)

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
        self._epochs: dict[str, int] = {}  # of the nodes, as the registry has them
        for topic in (ELECTION_TOPIC, HEARTBEAT_TOPIC):
            self.bus.subscribe(topic, self.heard.append)

    def start(self, name: str, registry: Any = None) -> None:
        place = Fence(name, self.registry.take_over(name, f"life of {name}", FOR_LONG), f"life of {name}")
        self._epochs[name] = place.epoch
        services = Services(self.services)
        watch = MonitorContext(
            place,
            lambda: self.roster,
            PACE,
            registry or self.registry,
            self.bus,
            self.revived.append,
            services,
        )
        listening = len(self.bus.subscribers(HEARTBEAT_TOPIC))
        self._monitors[name] = Running(Monitor(watch, self.clock), services)
        eventually(lambda: len(self.bus.subscribers(HEARTBEAT_TOPIC)) > listening)

    def stop(self, name: str) -> None:
        self._monitors.pop(name).stop()

    def pass_time(self, seconds: float, beating: tuple[str, ...] = ()) -> None:
        """Second by second. In each one the heartbeats arrive, every monitor ticks, and the messages of the
        monitors arrive too."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            for name in beating:
                self.beat(name)
            self.bus.await_delivery()
            for monitor in self._monitors.values():
                monitor.await_tick()
            self.bus.await_delivery()

    def pass_time_until(self, is_so: Callable[[], object], beating: tuple[str, ...] = ()) -> None:
        for _ in range(100):
            if is_so():
                return
            self.pass_time(1, beating)
        raise AssertionError("not within a hundred seconds")

    def beat(self, name: str, epoch: int = 1, trouble: str | None = None) -> None:
        """With the lease that a life of this epoch has; one that was replaced is not given it back."""
        while self._epochs.get(name, 0) < epoch:
            self._epochs[name] = self.registry.take_over(name, f"a life of {name}", FOR_LONG)
        self.forge_beat(name, epoch, trouble)

    def leave(self, name: str) -> None:
        """As a node does that leaves on purpose: in the registry first."""
        lease, shown = self.registry.leases()[name], self.nodes()[name]
        fence = Fence(name, lease.epoch, lease.holder)
        self.registry.report_node(replace(shown, state="stopped", epoch=lease.epoch), fence)
        self.registry.release(name, lease.holder, lease.epoch)
        self.bus.publish(HEARTBEAT_TOPIC, Stopped(node=name, epoch=lease.epoch))

    def forge_beat(self, name: str, epoch: int, trouble: str | None = None) -> None:
        """The message alone."""
        kind, now = self.roster.kinds[name], self.clock()
        told = Heartbeat(node=name, kind=kind, epoch=epoch, pid=100, url=None, sent_at=now, trouble=trouble)
        self.bus.publish(HEARTBEAT_TOPIC, told)

    def forget_heard(self) -> None:
        """Also what is still on its way."""
        self.bus.await_delivery()
        self.heard.clear()

    def leader(self) -> tuple[str, int] | None:
        """Whoever last said so, and under which epoch."""
        said = [message for message in self.heard if isinstance(message, LeaderAnnouncement)]
        return (NODES.monitors[said[-1].sender - 1], said[-1].epoch) if said else None

    def holds(self, name: str, epoch: int) -> bool:
        """Whether this epoch of the lease is held by anybody now."""
        lease = self.registry.leases().get(name)
        return lease is not None and lease.epoch == epoch and lease.overdue_seconds < 0

    def nodes(self) -> dict[str, NodeRecord]:
        return {node.name: node for node in self.registry.nodes()}

    def close(self) -> None:
        for monitor in self._monitors.values():
            monitor.stop()
        self.bus.close()
        self.registry.close()
