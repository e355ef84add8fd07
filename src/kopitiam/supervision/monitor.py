"""A monitor: elects a leader with its peers and, while it leads, decides for the fleet under its epoch.

One thread owns the machines (election and liveness); messages come to it by a queue, so that they need no
lock. Whatever the leader decides is written to the registry under its epoch first: one that has been
superseded learns it there, before it has done anything.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import BusUnavailable, StaleEpoch, Unavailable
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    Answer,
    Coordinator,
    Election,
    Heartbeat,
    Message,
    NodeKind,
    Stopped,
)
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.registry.records import ranked_holder
from kopitiam.supervision import coordinator
from kopitiam.supervision.election import (
    Action,
    Bully,
    SendAnswer,
    SendCoordinator,
    SendElection,
    StepDown,
    TakeEpoch,
)
from kopitiam.supervision.liveness import Alarm, Decision, Liveness, Recovered, Revive
from kopitiam.supervision.services import ServiceWatch

LEASE = "leader"
_TICK_SECONDS = 0.25
_DEAF_HEARTBEATS = 3  # of its own that a monitor does not hear: then it is cut off, and judges nobody
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """What a monitor is given by whoever composes it."""

    place: Fence  # its own, as a node of the fleet
    roster: Callable[[], NodesSection]  # nodes may be added while the fleet runs; monitors keep their ids
    pace: MonitorSection
    registry: RegistryPort
    bus: BusPort
    revive: Callable[[str], None]
    services: ServiceWatch

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def heard(self) -> dict[str, NodeKind]:
        """The nodes that have heartbeats."""
        return {name: kind for name, kind in self.roster().kinds.items() if kind != "service"}


class Monitor:
    def __init__(
        self,
        watch: Watch,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` is what the fleet is shown; elections go by a clock that nobody can set."""
        self._watch = watch
        self._now = now
        self._steady = steady
        monitors = watch.roster().monitors
        self._my_id = monitors.index(watch.name) + 1
        self._holder = uuid.uuid4().hex
        beat = watch.pace.heartbeat_seconds
        self._bully = Bully(
            self._my_id,
            frozenset(range(1, len(monitors) + 1)),
            answer_timeout=beat,
            coordinator_timeout=2 * beat,
            leader_timeout=watch.pace.timeout_seconds,
        )
        self._inbox: queue.SimpleQueue[Message | Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._leadership: _Leadership | None = None
        self._heard_myself = now()
        self._next_beat = now()

    def run(self) -> None:
        bus = self._watch.bus
        subscriptions = [
            bus.subscribe(ELECTION_TOPIC, self._inbox.put),
            bus.subscribe(HEARTBEAT_TOPIC, self._inbox.put),
        ]
        services = threading.Thread(target=self._watch.services.run, args=(self._stopping,), daemon=True)
        services.start()
        try:
            while not self._stopping.is_set():
                self._take(self._next())
                self._tick()
        finally:
            self._step_down()
            for subscription in subscriptions:
                subscription.cancel()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.put(None)

    def on_revived(self, node: str) -> None:
        """Called from any thread."""
        self._inbox.put(lambda: self._note_revived(node))

    def _note_revived(self, node: str) -> None:
        self._watch.services.on_revived(node, self._now())
        if self._leadership is not None:
            self._leadership.liveness.on_revived(node, self._now())

    def _next(self) -> Message | Callable[[], None] | None:
        try:
            return self._inbox.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return None

    def _take(self, event: Message | Callable[[], None] | None) -> None:
        now = self._now()
        match event:
            case Election(sender=sender):
                self._act(self._bully.on_election(sender, self._steady()))
            case Answer(sender=sender, to=to) if to == self._my_id:
                self._act(self._bully.on_answer(sender, self._steady()))
            case Coordinator(sender=sender, epoch=epoch) if sender != self._my_id:
                self._act(self._bully.on_coordinator(sender, epoch, self._steady()))
            case Heartbeat(node=node):
                if node == self._watch.name:
                    self._heard_myself = now
                if self._leadership is not None:
                    self._decide(self._leadership.hear(event, now))
            case Stopped(node=node, epoch=epoch) if self._leadership is not None:
                self._leadership.hear_farewell(node, epoch, now)
            case _ if callable(event):
                event()

    def _tick(self) -> None:
        now = self._now()
        self._act(self._bully.tick(self._steady()))
        if self._leadership is None or now < self._next_beat:
            return
        self._next_beat = now + self._watch.pace.heartbeat_seconds
        if not self._keep_leading():
            return
        self._publish(Coordinator(sender=self._my_id, epoch=self._bully.epoch))
        if now - self._heard_myself <= _DEAF_HEARTBEATS * self._watch.pace.heartbeat_seconds + 1:
            self._decide(self._leadership.liveness.tick(now))
        self._under_epoch(lambda leadership: leadership.report(now))

    def _keep_leading(self) -> bool:
        """While the registry is away nobody else can be granted an epoch: what we hold, we hold."""
        leadership = self._leadership
        assert leadership is not None
        if leadership.coordination.is_stale.is_set():
            return self._lose()
        try:
            holder, ttl = ranked_holder(self._my_id, self._holder), self._watch.pace.timeout_seconds
            if self._watch.registry.renew(LEASE, holder, leadership.fence.epoch, ttl):
                return True
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return True
        return self._lose()

    def _lose(self) -> bool:
        self._act(self._bully.on_epoch_lost(self._steady()))
        return False

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SendElection():
                    _log.info("election: asking those with higher ids")
                    self._publish(Election(sender=self._my_id))
                case SendAnswer(to):
                    self._publish(Answer(sender=self._my_id, to=to))
                case SendCoordinator(epoch):
                    self._publish(Coordinator(sender=self._my_id, epoch=epoch))
                case TakeEpoch():
                    self._take_epoch()
                case StepDown():
                    self._step_down()

    def _take_epoch(self) -> None:
        epoch = self._ask_for_epoch()
        if epoch is None:
            self._act(self._bully.on_epoch_refused(None, self._steady()))
            return
        self._act(self._bully.on_epoch_granted(epoch, self._steady()))
        if self._leadership is None or self._leadership.fence.epoch != epoch:
            self._step_down()
            self._leadership = _Leadership(self._watch, Fence(LEASE, epoch), self._now())
            _log.warning("%s leads, epoch %d", self._watch.name, epoch)

    def _ask_for_epoch(self) -> int | None:
        """One that was replaced while it stood still has the same id as its successor, and is not to take
        the lead from it."""
        watch = self._watch
        try:
            if not watch.registry.holds(watch.place.name, watch.place.epoch):
                return None
            return watch.registry.outrank(LEASE, self._my_id, self._holder, watch.pace.timeout_seconds)
        except Unavailable as error:
            _log.warning("election: %s", error)
            return None

    def _step_down(self) -> None:
        if self._leadership is not None:
            _log.warning("%s no longer leads", self._watch.name)
            self._leadership.end()
            self._leadership = None

    def _decide(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Revive(node, attempt):
                    is_written = self._under_epoch(lambda leadership: leadership.report(self._now()))
                    if is_written:
                        _log.warning("%s is dead: reviving it, attempt %d", node, attempt)
                        self._watch.revive(node)
                case Alarm(node, reason):
                    _log.error("ALARM: %s: %s", node, reason)
                case Recovered(node):
                    _log.warning("%s lives again", node)

    def _under_epoch(self, write: "Callable[[_Leadership], None]") -> bool:
        """Whether the registry took it. A stale epoch ends the leadership."""
        if self._leadership is None:
            return False
        try:
            write(self._leadership)
        except StaleEpoch:
            return self._lose()
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return False
        return True

    def _publish(self, message: Message) -> None:
        try:
            self._watch.bus.publish(ELECTION_TOPIC, message)
        except BusUnavailable as error:
            _log.info("election: %s", error)


class _Leadership:
    """What a monitor has while it leads; rebuilt from the registry every time."""

    def __init__(self, watch: Watch, fence: Fence, now: float) -> None:
        self.fence = fence
        self._watch = watch
        self.liveness = Liveness(
            watch.heard,
            timeout_seconds=watch.pace.timeout_seconds,
            revive_limit=watch.pace.revive_limit,
            pause_seconds=max(5.0, 3 * watch.pace.heartbeat_seconds),
        )
        self.liveness.tick(now)
        self._reported: dict[str, NodeRecord] = {}
        self._before = self._known_before()
        for node in self._before.values():
            if node.state == "stopped":
                self.liveness.on_stopped(node.name)
        self.coordination = coordinator.Coordination(watch.registry, watch.bus, fence)
        self.coordination.start()

    def hear(self, beat: Heartbeat, now: float) -> list[Decision]:
        return self.liveness.on_heartbeat(beat.node, beat.kind, beat.epoch, beat.pid, beat.url, now)

    def hear_farewell(self, name: str, epoch: int, now: float) -> None:
        """One that was replaced, and leaves late, takes nobody with it."""
        if any(node.name == name and node.epoch <= epoch for node in self.liveness.nodes(now)):
            self.liveness.on_stopped(name)

    def report(self, now: float) -> None:
        """What has changed since the last time, so that every gateway can show it."""
        self.liveness.expect(self._watch.heard, now)
        for gone in self._reported.keys() - self._watch.roster().kinds:
            self._watch.registry.forget_node(gone)
            del self._reported[gone]
        for node in (*self.liveness.nodes(now), *self._watch.services.nodes(now)):
            record = replace(self._as_known(node), leader=node.name == self._watch.name)
            if record != self._reported.get(node.name):
                self._watch.registry.report_node(record, self.fence)
                self._reported[node.name] = record

    def end(self) -> None:
        self.coordination.stop()

    def _as_known(self, node: NodeRecord) -> NodeRecord:
        """One not heard of since we lead is in the life that the leader before knew, and as well as then
        until it is declared dead."""
        before = self._before.get(node.name)
        if before is None:
            return node
        if node.pid is None:
            last = self._reported.get(node.name, before)
            if (last.state, node.state) == ("alive", "starting"):
                return last
            node = replace(node, pid=before.pid, url=before.url, epoch=before.epoch)
        is_same = (before.state, before.epoch) == (node.state, node.epoch)
        return replace(node, since=before.since) if is_same else node

    def _known_before(self) -> dict[str, NodeRecord]:
        """What the leader before knew: who left on purpose, and since when the others live."""
        try:
            return {node.name: node for node in self._watch.registry.nodes()}
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return {}
