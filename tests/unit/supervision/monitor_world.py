"""Monitors on a real registry and bus, with a clock that only the test advances."""

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
from kopitiam.supervision.membership import VERSION
from kopitiam.supervision.monitor import Monitor
from kopitiam.supervision.service_watch import ServiceWatch
from waiting import PATIENCE_SECONDS, eventually

BEAT, TIMEOUT = 1.0, 6.0
PACE = MonitorSection(heartbeat_seconds=BEAT, timeout_seconds=TIMEOUT)
NODES = NodesSection()
FOR_LONG = 1e6
MARKER_NODE = "marker"


def is_mark(message: Message) -> bool:
    """Whether this is a marker, which shows that all messages before it have been handled."""
    return (isinstance(message, ElectionAnswer) and message.sender == 0) or (
        isinstance(message, Stopped) and message.node == MARKER_NODE
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class WatchedBus(MemoryBus):
    """Records how far each subscriber has come, by marks published between the messages."""

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
        """Wait until all subscribers have handled the heartbeats and election messages published so far."""
        number = next(self._marks)
        for topic, mark in (
            (HEARTBEAT_TOPIC, Stopped(node=MARKER_NODE, epoch=number)),
            (ELECTION_TOPIC, ElectionAnswer(sender=0, to=number)),
        ):
            awaited = self.subscribers(topic)
            self.publish(topic, mark)
            eventually(lambda awaited=awaited, mark=mark: all(mark in passed for passed in awaited))

    def _remove(self, courier: HandlerThread) -> None:
        super()._remove(courier)
        self._passed.pop(courier, None)


class Services(ServiceWatch):
    """A fixed list of services; records each call of `on_revived` by the monitor's thread."""

    def __init__(self, records: list[NodeRecord]) -> None:
        super().__init__(dict, print, print, every_seconds=BEAT, patience_seconds=0, revive_limit=1)
        self._records = records
        self.passed: set[str] = set()

    def on_revived(self, name: str, now: float, failure: str | None = None) -> None:
        self.passed.add(name)

    def nodes(self, now: float) -> list[NodeRecord]:
        return self._records


class Running:
    """A monitor on its own thread."""

    def __init__(self, monitor: Monitor, services: Services) -> None:
        self._monitor = monitor
        self._services = services
        self._marks = itertools.count()
        self._thread = threading.Thread(target=monitor.run, daemon=True)
        self._thread.start()

    def await_tick(self) -> None:
        """Wait for one complete tick and for all events queued before it."""
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
        self.received: list[Message] = []
        self.revived: list[str] = []
        self.roster = NODES
        self.services: list[NodeRecord] = []
        self._monitors: dict[str, Running] = {}
        self._epochs: dict[str, int] = {}  # of the nodes, as the registry has them
        self._taking_over = threading.Lock()  # a slow registry sends heartbeats on the monitor's thread
        for topic in (ELECTION_TOPIC, HEARTBEAT_TOPIC):
            self.bus.subscribe(topic, self.received.append)

    def start(self, name: str, registry: Any = None) -> None:
        fence = Fence(
            name, self.registry.take_over(name, f"process of {name}", FOR_LONG), f"process of {name}"
        )
        self._epochs[name] = fence.epoch
        services = Services(self.services)
        context = MonitorContext(
            fence,
            lambda: self.roster,
            PACE,
            registry or self.registry,
            self.bus,
            self.revived.append,
            services,
        )
        subscribed = len(self.bus.subscribers(HEARTBEAT_TOPIC))
        self._monitors[name] = Running(Monitor(context, self.clock), services)
        eventually(lambda: len(self.bus.subscribers(HEARTBEAT_TOPIC)) > subscribed)

    def stop(self, name: str) -> None:
        self._monitors.pop(name).stop()

    def pass_time(self, seconds: float, beating: tuple[str, ...] = ()) -> None:
        """Advance the clock second by second. In each second the nodes in `beating` send heartbeats, every
        monitor ticks, and the messages of the monitors arrive."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            for name in beating:
                self.beat(name)
            self.bus.await_delivery()
            for monitor in self._monitors.values():
                monitor.await_tick()
            self.bus.await_delivery()

    def pass_time_until(self, condition: Callable[[], object], beating: tuple[str, ...] = ()) -> None:
        for _ in range(100):
            if condition():
                return
            self.pass_time(1, beating)
        raise AssertionError("condition not met within 100 seconds")

    def beat(
        self, name: str, epoch: int = 1, alarm: str | None = None, version: str | None = VERSION
    ) -> None:
        """Send a heartbeat of this epoch; take over the lease first if its epoch is lower."""
        with self._taking_over:
            while self._epochs.get(name, 0) < epoch:
                self._epochs[name] = self.registry.take_over(name, f"another process of {name}", FOR_LONG)
        self.forge_beat(name, epoch, alarm, version)

    def stop_on_purpose(self, name: str) -> None:
        """Record the stop in the registry, release the lease, then publish STOPPED, as a node does."""
        lease, record = self.registry.leases()[name], self.nodes()[name]
        fence = Fence(name, lease.epoch, lease.holder)
        self.registry.report_node(replace(record, state="stopped", epoch=lease.epoch), fence)
        self.registry.release(name, lease.holder, lease.epoch)
        self.bus.publish(HEARTBEAT_TOPIC, Stopped(node=name, epoch=lease.epoch))

    def forge_beat(
        self, name: str, epoch: int, alarm: str | None = None, version: str | None = VERSION
    ) -> None:
        """Publish a heartbeat without taking a lease."""
        beat = Heartbeat(
            node=name,
            kind=self.roster.kinds[name],
            epoch=epoch,
            pid=100,
            url=None,
            sent_at=self.clock(),
            alarm=alarm,
            host=f"host-of-{name}",
            version=version,
        )
        self.bus.publish(HEARTBEAT_TOPIC, beat)

    def clear_received(self) -> None:
        """Wait for messages in flight, then clear all."""
        self.bus.await_delivery()
        self.received.clear()

    def leader(self) -> tuple[str, int] | None:
        """Name and epoch of the last announcement."""
        announcements = [message for message in self.received if isinstance(message, LeaderAnnouncement)]
        return (
            (NODES.monitors[announcements[-1].sender - 1], announcements[-1].epoch) if announcements else None
        )

    def await_leader(self, name: str, beating: tuple[str, ...]) -> int:
        """Pass time until this monitor was announced last; returns its epoch. One that started before it may
        have led for a while."""
        self.pass_time_until(lambda: (self.leader() or ("", 0))[0] == name, beating)
        _, epoch = self.leader()
        return epoch

    def holds(self, name: str, epoch: int) -> bool:
        """Whether the lease has this epoch and has not expired."""
        lease = self.registry.leases().get(name)
        return lease is not None and lease.epoch == epoch and lease.overdue_seconds < 0

    def nodes(self) -> dict[str, NodeRecord]:
        return {node.name: node for node in self.registry.nodes()}

    def close(self) -> None:
        for monitor in self._monitors.values():
            monitor.stop()
        self.bus.close()
        self.registry.close()
