"""A monitor: takes part in the election and, while it leads, decides for the fleet under its epoch.

One thread owns the election and liveness machines, and receives messages through a queue, so that they need
no lock. Every decision is first written to the registry under the epoch: a superseded leader gets
`StaleEpoch` there, before it acts.
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
from kopitiam.supervision.reviver import handle_revived
from kopitiam.system.crash_points import crash_point

LEASE = "leader"
_TICK_SECONDS = 0.25
_STALLED_TIMEOUTS = 6  # a loop that takes longer has failed
_LOST_HEARTBEATS = 3  # of its own: then the bus is lost
_log = logging.getLogger(__name__)


class Monitor:
    """One monitor of the fleet: `run` blocks until `stop`."""

    def __init__(
        self,
        context: MonitorContext,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ages are measured by `steady`, a monotonic clock; times shared with other machines are the
        registry's."""
        self._context = context
        self._steady = steady
        self._ids = {name: number for number, name in enumerate(context.roster().monitors, start=1)}
        self._my_id = self._ids[context.name]
        self._holder = uuid.uuid4().hex
        self._bully = self._new_bully()
        self._inbox: queue.SimpleQueue[Message | Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._leadership: Leadership | None = None
        self._own_heartbeat_at = steady()
        self._next_beat = steady()
        self._iteration_at: float | None = None  # start of the last loop iteration

    def run(self) -> None:
        bus = self._context.bus
        subscriptions = [
            bus.subscribe(ELECTION_TOPIC, self._inbox.put),
            bus.subscribe(HEARTBEAT_TOPIC, self._inbox.put),
        ]
        services = threading.Thread(target=self._context.services.run, args=(self._stopping,), daemon=True)
        services.start()
        try:
            while not self._stopping.is_set():
                self._iteration_at = self._steady()
                for event in self._waiting_events():
                    self._handle(event)
                self._tick()
        finally:
            self._resign()
            for subscription in subscriptions:
                subscription.cancel()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.put(None)

    def failure_reason(self) -> str | None:
        """Why the decision loop has failed, or None. Callable from any thread.

        A registry outage blocks the loops of all monitors, which must not all exit: the bound is wide.
        """
        bound = _STALLED_TIMEOUTS * self._context.pace.timeout_seconds
        if self._iteration_at is None or self._steady() - self._iteration_at <= bound:
            return None
        return f"the decision loop has been stalled for {bound:.0f} s"

    def on_revived(self, node: str, failure: str | None = None) -> None:
        """The revive command of `node` has run, or failed. Callable from any thread."""
        self._inbox.put(lambda: self._handle_revived(node, failure))

    def _handle_revived(self, node: str, failure: str | None) -> None:
        self._context.services.on_revived(node, self._steady(), failure)
        if self._leadership is not None:
            handle_revived(self._leadership.liveness, node, self._steady(), failure)

    def _waiting_events(self) -> Iterator[Message | Callable[[], None] | None]:
        """All events that are waiting: with a slow registry, one event per iteration would fall behind the
        heartbeats. Later events wait for the next iteration, so that a flood cannot block decisions."""
        with contextlib.suppress(queue.Empty):
            yield self._inbox.get(timeout=_TICK_SECONDS)
            for _ in range(self._inbox.qsize()):
                yield self._inbox.get_nowait()

    def _handle(self, event: Message | Callable[[], None] | None) -> None:
        match event:
            case Election(sender=sender) if not self._is_cut_off:
                self._perform(self._bully.on_election(sender, self._steady()))
            case ElectionAnswer(sender=sender, to=to) if to == self._my_id:
                self._perform(self._bully.on_answer(sender, self._steady()))
            case LeaderAnnouncement(sender=sender, epoch=epoch) if self._is_confirmed_leader(sender, epoch):
                self._perform(self._bully.on_announcement(sender, epoch, self._steady()))
            case Heartbeat(node=node):
                if node == self._context.name:
                    self._on_own_heartbeat()
                if self._leadership is not None:
                    self._carry_out(self._leadership.on_heartbeat(event, self._steady()))
            case Stopped(node=node):
                if self._leadership is not None:
                    self._under_epoch(lambda leadership: leadership.read_stopped_nodes(self._steady()))
                if self._ids.get(node) == self._bully.leader and self._is_lead_released():
                    self._perform(self._bully.on_leader_left(self._ids[node], self._steady()))
            case _ if callable(event):
                event()

    def _is_confirmed_leader(self, sender: int, epoch: int) -> bool:
        """Whether the registry confirms an announcement: a message alone makes no leader. During a registry
        outage there is no election, and the known leader stays."""
        if sender == self._my_id:
            return False
        try:
            lease = self._context.registry.leases().get(LEASE)
        except Unavailable:
            return (sender, epoch) == (self._bully.leader, self._bully.epoch)
        patience_seconds = self._context.pace.timeout_seconds
        return (
            lease is not None
            and (lease.rank, lease.epoch) == (sender, epoch)
            and lease.overdue_seconds < patience_seconds
        )

    def _is_lead_released(self) -> bool:
        try:
            lease = self._context.registry.leases().get(LEASE)
        except Unavailable:
            return False  # its heartbeats will be missing if it stopped
        return lease is None or lease.is_released

    def _on_own_heartbeat(self) -> None:
        if self._is_bus_lost and self._leadership is not None:
            self._leadership.liveness.extend_deadlines(self._steady())
        if self._is_cut_off:
            self._bully.on_bus_restored(self._steady())
        self._own_heartbeat_at = self._steady()

    @property
    def _is_bus_lost(self) -> bool:
        """Own heartbeats do not arrive. The monitor then makes no liveness decisions and does not renew the
        lead, so that another can take it; if all monitors have lost the bus, none does."""
        patience_seconds = _LOST_HEARTBEATS * self._context.pace.heartbeat_seconds + 1
        return self._steady() - self._own_heartbeat_at > patience_seconds

    @property
    def _is_cut_off(self) -> bool:
        """The bus has been lost for longer than the timeout. Other monitors consider this one dead, so it
        takes no part in elections."""
        return (
            self._is_bus_lost and self._steady() - self._own_heartbeat_at > self._context.pace.timeout_seconds
        )

    def _tick(self) -> None:
        if not self._is_cut_off:
            self._perform(self._bully.tick(self._steady()))
        if self._leadership is None or self._steady() < self._next_beat:
            return
        self._next_beat = self._steady() + self._context.pace.heartbeat_seconds
        if not self._keep_leading():
            return
        if not self._is_cut_off:
            self._publish(LeaderAnnouncement(sender=self._my_id, epoch=self._bully.epoch))
        if self._is_bus_lost:
            self._leadership.on_bus_lost()
        else:
            self._carry_out(self._leadership.check_liveness(self._steady()))
        self._under_epoch(lambda leadership: leadership.report(self._steady()))

    def _keep_leading(self) -> bool:
        """Renew the lead. During a registry outage no other monitor can get an epoch, so it is kept; without
        the bus it is not renewed, and stays valid until another monitor requests it."""
        leadership = self._leadership
        assert leadership is not None
        if leadership.coordinator.is_stale.is_set():
            return self._lose()
        if self._is_bus_lost:
            return True
        try:
            ttl = self._context.pace.timeout_seconds
            if self._context.registry.renew(LEASE, self._ranked_holder, leadership.fence.epoch, ttl):
                return True
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return True
        return self._lose()

    def _lose(self) -> bool:
        self._perform(self._bully.on_epoch_lost(self._steady()))
        return False

    def _perform(self, actions: list[ElectionAction]) -> None:
        for action in actions:
            match action:
                case SendElection():
                    _log.info("election: asking monitors with higher ids")
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
        epoch = self._request_epoch()
        if epoch is None:
            self._perform(self._bully.on_epoch_refused(self._steady()))
            return
        if epoch < self._bully.epoch:
            announced = self._bully.epoch
            _log.warning("election: epoch %d was announced, which the registry did not grant", announced)
            self._bully = self._new_bully()
        self._perform(self._bully.on_epoch_granted(epoch, self._steady()))
        if self._leadership is None or self._leadership.fence.epoch != epoch:
            self._step_down()
            fence = Fence(LEASE, epoch, self._ranked_holder)
            self._leadership = Leadership(self._context, fence, self._steady())
            _log.warning("%s leads, epoch %d", self._context.name, epoch)

    def _new_bully(self) -> Bully:
        """Return the election machine in its initial state."""
        pace = self._context.pace
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

    def _request_epoch(self) -> int | None:
        """Returns None if refused. A monitor that was replaced while suspended has the same id as its
        successor, and must not take the lead from it: it no longer holds its node lease."""
        context = self._context
        if self._is_cut_off:
            return None
        try:
            if not context.registry.holds(context.node_fence):
                return None
            crash_point("epoch.requested")
            epoch = context.registry.take_over_if_higher(
                LEASE, self._my_id, self._holder, context.pace.timeout_seconds
            )
            if epoch is not None:
                crash_point("epoch.taken")
            return epoch
        except Unavailable as error:
            _log.warning("election: %s", error)
            return None

    def _step_down(self) -> None:
        if self._leadership is not None:
            _log.warning("%s no longer leads", self._context.name)
            self._leadership.end()
            self._leadership = None

    def _resign(self) -> None:
        """Step down and release the lease, so that another monitor can lead at once."""
        if self._leadership is None:
            return
        epoch = self._leadership.fence.epoch
        self._step_down()
        try:
            self._context.registry.release(LEASE, self._ranked_holder, epoch)
        except Unavailable as error:
            _log.warning("resigning: %s", error)

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Revive(node, attempt):
                    self._revive(node, attempt)
                case Alarm(node, reason):
                    _log.error("ALARM: %s: %s", node, reason)
                case Recovered(node):
                    _log.warning("%s is alive again", node)

    def _revive(self, node: str, attempt: int) -> None:
        """Write the record first: that checks the epoch, and whether the node stopped on purpose."""
        crash_point("revival.decided")
        is_written = self._under_epoch(lambda leadership: leadership.report(self._steady(), about=node))
        if is_written and self._leadership and self._leadership.is_dead(node, self._steady()):
            crash_point("revival.recorded")
            _log.warning("%s is dead: reviving it, attempt %d", node, attempt)
            log_action(self._leadership.fence.epoch, "revives", node)
            self._context.revive(node)

    def _under_epoch(self, write: Callable[[Leadership], None]) -> bool:
        """Whether the write was committed. A stale epoch ends the leadership."""
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
            self._context.bus.publish(ELECTION_TOPIC, message)
        except BusUnavailable as error:
            _log.info("election: %s", error)
