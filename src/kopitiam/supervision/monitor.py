"""A monitor: elects a leader with its peers and, while it leads, decides for the fleet under its epoch.

One thread owns the machines (election and liveness); messages come to it by a queue, so that they need no
lock. Whatever the leader decides is written to the registry under its epoch first: one that has been
superseded learns it there, before it has done anything.
"""

import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from kopitiam.contracts.errors import BusUnavailable, StaleEpoch, Unavailable
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    Election,
    ElectionAnswer,
    Heartbeat,
    LeaderAnnouncement,
    Message,
    Stopped,
)
from kopitiam.registry.records import Fence, ranked_holder
from kopitiam.supervision.actions import log_action
from kopitiam.supervision.election import (
    Bully,
    ElectionAction,
    SendAnnouncement,
    SendAnswer,
    SendElection,
    StepDown,
    TakeEpoch,
)
from kopitiam.supervision.leadership import Leadership, MonitorContext
from kopitiam.supervision.liveness import Alarm, Decision, Recovered, Revive
from kopitiam.system.crash_points import crash_point

LEASE = "leader"
_TICK_SECONDS = 0.25
_STANDSTILL_TIMEOUTS = 6
_DEAF_HEARTBEATS = 3  # of its own that a monitor does not hear
_log = logging.getLogger(__name__)


class Monitor:
    def __init__(
        self,
        watch: MonitorContext,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """All ages are measured here, by a clock that nobody can set; what is compared with other machines
        goes by the registry's."""
        self._watch = watch
        self._steady = steady
        self._ids = {name: number for number, name in enumerate(watch.roster().monitors, start=1)}
        self._my_id = self._ids[watch.name]
        self._holder = uuid.uuid4().hex
        self._bully = self._new_bully()
        self._inbox: queue.SimpleQueue[Message | Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._leadership: Leadership | None = None
        self._heard_myself = steady()
        self._next_beat = steady()
        self._turned_at: float | None = None  # when the loop that decides has last gone round

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
                self._turned_at = self._steady()
                for event in self._arrived():
                    self._take(event)
                self._tick()
        finally:
            self._resign()
            for subscription in subscriptions:
                subscription.cancel()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.put(None)

    def vouch(self) -> str | None:
        """Called from any thread. A registry that is away holds the loop up for a while, for all monitors at
        once, which must not all leave for it: so the bound is wide."""
        bound = _STANDSTILL_TIMEOUTS * self._watch.pace.timeout_seconds
        if self._turned_at is None or self._steady() - self._turned_at <= bound:
            return None
        return f"the loop that decides has stood still for {bound:.0f} s"

    def on_revived(self, node: str) -> None:
        """Called from any thread."""
        self._inbox.put(lambda: self._note_revived(node))

    def _note_revived(self, node: str) -> None:
        self._watch.services.on_revived(node, self._steady())
        if self._leadership is not None:
            self._leadership.liveness.on_revived(node, self._steady())

    def _arrived(self) -> Iterator[Message | Callable[[], None] | None]:
        """Everything that waits: with a slow registry, one message a turn would fall behind the heartbeats.
        What arrives meanwhile waits for the next turn, so that no flood keeps the monitor from deciding."""
        with contextlib.suppress(queue.Empty):
            yield self._inbox.get(timeout=_TICK_SECONDS)
            for _ in range(self._inbox.qsize()):
                yield self._inbox.get_nowait()

    def _take(self, event: Message | Callable[[], None] | None) -> None:
        match event:
            case Election(sender=sender) if not self._is_cut_off:
                self._act(self._bully.on_election(sender, self._steady()))
            case ElectionAnswer(sender=sender, to=to) if to == self._my_id:
                self._act(self._bully.on_answer(sender, self._steady()))
            case LeaderAnnouncement(sender=sender, epoch=epoch) if self._leads(sender, epoch):
                self._act(self._bully.on_announcement(sender, epoch, self._steady()))
            case Heartbeat(node=node):
                if node == self._watch.name:
                    self._hear_myself()
                if self._leadership is not None:
                    self._decide(self._leadership.hear(event, self._steady()))
            case Stopped(node=node):
                if self._leadership is not None:
                    self._under_epoch(lambda leadership: leadership.read_stopped_nodes(self._steady()))
                if self._ids.get(node) == self._bully.leader and self._is_lead_given_back():
                    self._act(self._bully.on_leader_left(self._ids[node], self._steady()))
            case _ if callable(event):
                event()

    def _leads(self, sender: int, epoch: int) -> bool:
        """By the registry: a message alone makes nobody a leader, and deposes nobody. While the registry is
        away nobody can be elected, and the leader that was known goes on."""
        if sender == self._my_id:
            return False
        try:
            lease = self._watch.registry.leases().get(LEASE)
        except Unavailable:
            return (sender, epoch) == (self._bully.leader, self._bully.epoch)
        patience_seconds = self._watch.pace.timeout_seconds
        return (
            lease is not None
            and (lease.rank, lease.epoch) == (sender, epoch)
            and lease.overdue_seconds < patience_seconds
        )

    def _is_lead_given_back(self) -> bool:
        try:
            lease = self._watch.registry.leases().get(LEASE)
        except Unavailable:
            return False  # it will be missed, if it left
        return lease is None or lease.is_released

    def _hear_myself(self) -> None:
        if self._is_deaf and self._leadership is not None:
            self._leadership.liveness.extend_deadlines(self._steady())
        if self._is_cut_off:
            self._bully.on_hearing_again(self._steady())
        self._heard_myself = self._steady()

    @property
    def _is_deaf(self) -> bool:
        """Then a monitor judges nobody, and lets others have the lead: without the bus it can revive nobody.
        If the bus is away for all of them, nobody takes it."""
        patience_seconds = _DEAF_HEARTBEATS * self._watch.pace.heartbeat_seconds + 1
        return self._steady() - self._heard_myself > patience_seconds

    @property
    def _is_cut_off(self) -> bool:
        """Deaf for so long that the others take it for dead: it takes no part in elections."""
        return self._is_deaf and self._steady() - self._heard_myself > self._watch.pace.timeout_seconds

    def _tick(self) -> None:
        if not self._is_cut_off:
            self._act(self._bully.tick(self._steady()))
        if self._leadership is None or self._steady() < self._next_beat:
            return
        self._next_beat = self._steady() + self._watch.pace.heartbeat_seconds
        if not self._keep_leading():
            return
        if not self._is_cut_off:
            self._publish(LeaderAnnouncement(sender=self._my_id, epoch=self._bully.epoch))
        if self._is_deaf:
            self._leadership.on_bus_lost()
        else:
            self._decide(self._leadership.judge(self._steady()))
        self._under_epoch(lambda leadership: leadership.report(self._steady()))

    def _keep_leading(self) -> bool:
        """While the registry is away nobody else can be granted an epoch: what we hold, we hold. A lease that
        is not renewed is as good, until somebody wants it."""
        leadership = self._leadership
        assert leadership is not None
        if leadership.coordinator.is_stale.is_set():
            return self._lose()
        if self._is_deaf:
            return True
        try:
            ttl = self._watch.pace.timeout_seconds
            if self._watch.registry.renew(LEASE, self._ranked_holder, leadership.fence.epoch, ttl):
                return True
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return True
        return self._lose()

    def _lose(self) -> bool:
        self._act(self._bully.on_epoch_lost(self._steady()))
        return False

    def _act(self, actions: list[ElectionAction]) -> None:
        for action in actions:
            match action:
                case SendElection():
                    _log.info("election: asking those with higher ids")
                    self._publish(Election(sender=self._my_id))
                case SendAnswer(to):
                    self._publish(ElectionAnswer(sender=self._my_id, to=to))
                case SendAnnouncement(epoch):
                    self._publish(LeaderAnnouncement(sender=self._my_id, epoch=epoch))
                case TakeEpoch():
                    self._take_epoch()
                case StepDown():
                    self._step_down()

    def _take_epoch(self) -> None:
        epoch = self._ask_for_epoch()
        if epoch is None:
            self._act(self._bully.on_epoch_refused(self._steady()))
            return
        if epoch < self._bully.epoch:
            heard = self._bully.epoch
            _log.warning("election: epoch %d was heard of, which the registry did not give", heard)
            self._bully = self._new_bully()
        self._act(self._bully.on_epoch_granted(epoch, self._steady()))
        if self._leadership is None or self._leadership.fence.epoch != epoch:
            self._step_down()
            fence = Fence(LEASE, epoch, self._ranked_holder)
            self._leadership = Leadership(self._watch, fence, self._steady())
            _log.warning("%s leads, epoch %d", self._watch.name, epoch)

    def _new_bully(self) -> Bully:
        """One that has heard of nothing yet."""
        pace = self._watch.pace
        return Bully(
            self._my_id,
            frozenset(self._ids.values()),
            answer_timeout_seconds=pace.heartbeat_seconds,
            announcement_timeout_seconds=2 * pace.heartbeat_seconds,
            leader_timeout_seconds=pace.timeout_seconds,
        )

    @property
    def _ranked_holder(self) -> str:
        return ranked_holder(self._my_id, self._holder)

    def _ask_for_epoch(self) -> int | None:
        """One that was replaced while it stood still has the same id as its successor, and is not to take
        the lead from it."""
        watch = self._watch
        if self._is_cut_off:
            return None
        try:
            if not watch.registry.holds(watch.place):
                return None
            crash_point("epoch.wanted")
            epoch = watch.registry.take_over_if_higher(
                LEASE, self._my_id, self._holder, watch.pace.timeout_seconds
            )
            if epoch is not None:
                crash_point("epoch.taken")
            return epoch
        except Unavailable as error:
            _log.warning("election: %s", error)
            return None

    def _step_down(self) -> None:
        if self._leadership is not None:
            _log.warning("%s no longer leads", self._watch.name)
            self._leadership.end()
            self._leadership = None

    def _resign(self) -> None:
        """Steps down of its own accord: the lease is free for whoever comes next."""
        if self._leadership is None:
            return
        epoch = self._leadership.fence.epoch
        self._step_down()
        try:
            self._watch.registry.release(LEASE, self._ranked_holder, epoch)
        except Unavailable as error:
            _log.warning("leading no more: %s", error)

    def _decide(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Revive(node, attempt):
                    self._revive(node, attempt)
                case Alarm(node, reason):
                    _log.error("ALARM: %s: %s", node, reason)
                case Recovered(node):
                    _log.warning("%s lives again", node)

    def _revive(self, node: str, attempt: int) -> None:
        """Written first: there we learn whether we still lead, and whether the node left on purpose."""
        crash_point("revival.decided")
        is_written = self._under_epoch(lambda leadership: leadership.report(self._steady(), about=node))
        if is_written and self._leadership and self._leadership.is_dead(node, self._steady()):
            crash_point("revival.recorded")
            _log.warning("%s is dead: reviving it, attempt %d", node, attempt)
            log_action(self._leadership.fence.epoch, "revives", node)
            self._watch.revive(node)

    def _under_epoch(self, write: Callable[[Leadership], None]) -> bool:
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
