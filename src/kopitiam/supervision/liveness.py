"""The liveness state machine: heartbeats and time in, decisions to revive nodes out.

Only heartbeats count: a slow node that sends them is alive. Time in which nothing was observed does not count
against a node: a new leader gives every node a full timeout, and a pause of the monitor itself moves all
deadlines. A monitor that is cut off from the bus must not tick, and calls `extend_deadlines` afterwards.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kopitiam.contracts.messages import NodeKind, NodeRecord, NodeState

UNREACHABLE = "its machine cannot be reached"  # begins the alarm of a node that is still revived


class Backoff(NamedTuple):
    first_seconds: float = 10.0
    factor: float = 2.0
    most_seconds: float = 300.0

    def after(self, attempt: int) -> float:
        return min(self.first_seconds * self.factor ** (attempt - 1), self.most_seconds)


@dataclass(frozen=True)
class Revive:
    node: str
    attempt: int


@dataclass(frozen=True)
class Alarm:
    """Revival failed too often: an operator has to intervene."""

    node: str
    reason: str


@dataclass(frozen=True)
class Recovered:
    """A dead node sends heartbeats again, revived or by itself."""

    node: str


Decision = Revive | Alarm | Recovered


@dataclass
class _Node:
    kind: NodeKind
    state: NodeState = "starting"
    since: float = 0.0
    deadline: float = math.inf  # act if no heartbeat arrives by then
    stable_at: float = math.inf
    epoch: int = 0
    pid: int | None = None  # None before the first heartbeat
    url: str | None = None
    host: str | None = None
    failure: str | None = None  # of the last revive command
    unreached: int = 0  # revive commands in a row that did not reach its machine
    attempts: int = 0
    alarm: str | None = None
    is_lost: bool = False  # declared dead, without a heartbeat since

    def is_same_process(self, epoch: int, pid: int) -> bool:
        return epoch == self.epoch and self.pid in (None, pid)

    def enter(self, state: NodeState, now: float) -> None:
        if state != self.state:
            self.state, self.since = state, now


class Liveness:
    def __init__(
        self,
        expected: Mapping[str, NodeKind],
        *,
        timeout_seconds: float = 20.0,
        revive_backoff: tuple[float, float, float] = Backoff(),
        revive_limit: int = 5,
        stable_seconds: float = 60.0,
        pause_seconds: float = 5.0,
    ) -> None:
        """After `revive_limit` attempts an alarm is raised; the count resets once a node was alive for
        `stable_seconds`. More than `pause_seconds` without a tick or heartbeat is a pause of this process;
        it must exceed the interval between ticks."""
        self._timeout = timeout_seconds
        self._backoff = Backoff(*revive_backoff)
        self._limit = revive_limit
        self._stable = stable_seconds
        self._pause = pause_seconds
        self._nodes = {name: _Node(kind) for name, kind in expected.items()}
        self._now: float | None = None

    def expect(self, expected: Mapping[str, NodeKind], now: float) -> None:
        """Replace the set of nodes: added ones get a full timeout to start. Does not advance the time."""
        now = self._observed_until(now)
        known = {name: node for name, node in self._nodes.items() if expected.get(name) == node.kind}
        self._nodes = {
            name: known.get(name) or _Node(kind, since=now, deadline=now + self._timeout)
            for name, kind in expected.items()
        }

    def on_heartbeat(  # noqa: PLR0917 - the fields of the message
        self,
        node: str,
        kind: NodeKind,
        epoch: int,
        pid: int,
        url: str | None,
        now: float,
        alarm: str | None = None,
        host: str | None = None,
    ) -> list[Decision]:
        """`alarm` is shown as the node's alarm until a heartbeat arrives without it."""
        now = self._advance(now)
        known = self._nodes.get(node)
        if known is None or known.kind != kind or epoch < known.epoch:
            return []
        if known.state == "stopped" and now < known.deadline and known.is_same_process(epoch, pid):
            return []  # a late one, sent before the node stopped
        decisions: list[Decision] = [Recovered(node)] if known.is_lost else []
        if known.state != "alive":
            known.enter("alive", now)
            known.stable_at = now + self._stable
        elif now >= known.stable_at:
            known.attempts = 0
        known.epoch, known.pid, known.url, known.host = epoch, pid, url, host
        known.deadline = now + self._timeout
        known.alarm, known.is_lost, known.failure, known.unreached = alarm, False, None, 0
        return decisions

    def on_stopped(self, node: str, epoch: int = 0) -> None:
        """The process with this epoch stopped on purpose: do not revive the node until it starts again."""
        known = self._nodes.get(node)
        if known is None:
            return
        known.epoch = max(known.epoch, epoch)
        if known.state == "stopped":
            return
        now = self._now or 0.0
        known.enter("stopped", now)
        known.deadline = now + self._timeout  # until then, heartbeats of the stopped process are late ones
        known.alarm, known.attempts, known.is_lost = None, 0, False

    def on_taken_over(self, node: str, epoch: int, now: float) -> None:
        """A new process has taken the node's lease. A stopped node is expected again from now on, and revived
        if it dies before its first heartbeat. In other states no deadline moves."""
        known = self._nodes.get(node)
        if known is None or epoch <= known.epoch:
            return
        known.epoch, known.pid, known.url = epoch, None, None
        if known.state == "stopped":
            observed = self._observed_until(now)
            known.enter("starting", observed)
            known.deadline = observed + self._timeout

    def drop_epoch(self, node: str, epoch: int) -> None:
        """The registry was restored and has an earlier epoch than the last heartbeat: accept that one."""
        if known := self._nodes.get(node):
            known.epoch = epoch

    def give_up(self, node: str, alarm: str) -> None:
        """Take over the alarm of an earlier leader: do not revive the node, unless it sends a heartbeat."""
        if known := self._nodes.get(node):
            known.enter("dead", self._now or 0.0)
            known.alarm, known.attempts, known.is_lost = alarm, self._limit, True
            known.deadline = math.inf

    def extend_deadlines(self, now: float) -> None:
        """After a bus outage, give every node a full timeout to send a heartbeat."""
        now = self._advance(now)
        for node in self._nodes.values():
            if node.state != "stopped":
                node.deadline = max(node.deadline, now + self._timeout)

    def on_unreachable(self, node: str, now: float, failure: str) -> None:
        """The revive command could not reach the machine of the node: try again after the first backoff, for
        as long as it takes. It does not count as an attempt, but as many in a row raise an alarm."""
        known = self._nodes.get(node)
        if known is None or known.state != "dead":
            return
        known.attempts, known.unreached = max(0, known.attempts - 1), known.unreached + 1
        known.deadline = self._observed_until(now) + self._backoff.first_seconds
        if known.unreached >= self._limit:
            known.alarm = f"{UNREACHABLE}: {failure}"

    def on_revived(self, node: str, now: float, failure: str | None = None) -> None:
        """The revive command has run: give the node time to start. An alarm will name its `failure`."""
        known = self._nodes.get(node)
        if known is not None:
            known.failure, known.unreached = failure, 0
        if known is not None and known.state in ("dead", "starting"):
            known.enter("starting", now)
            known.deadline = self._observed_until(now) + self._backoff.after(max(known.attempts, 1))

    def tick(self, now: float) -> list[Decision]:
        now = self._advance(now)
        return [
            decision
            for name, node in self._nodes.items()
            if node.state != "stopped" and now >= node.deadline
            for decision in self._revive_or_give_up(name, node, now)
        ]

    def nodes(self, now: float) -> list[NodeRecord]:
        """In the order of the configuration, without the leader flag."""
        observed = self._observed_until(now)
        return [_record(name, node, observed) for name, node in self._nodes.items()]

    def _revive_or_give_up(self, name: str, node: _Node, now: float) -> list[Decision]:
        node.enter("dead", now)
        if not node.is_lost:
            node.alarm = None  # its own alarm, reported while alive
        node.is_lost = True
        if node.attempts < self._limit:
            node.attempts += 1
            node.deadline = now + self._backoff.after(node.attempts)  # `on_revived` may never be called
            return [Revive(name, node.attempts)]
        node.deadline = math.inf
        if node.alarm is not None:
            return []
        reason = f": {node.failure}" if node.failure else ""
        node.alarm = f"no heartbeat after {node.attempts} attempts to revive it{reason}"
        return [Alarm(name, node.alarm)]

    def _advance(self, now: float) -> float:
        """Move the time forward, never back. A pause, or a clock set back further, moves all deadlines."""
        observed = self._observed_until(now)
        gap = now - observed
        if abs(gap) > self._pause:
            for node in self._nodes.values():
                node.deadline += gap
                node.stable_at += gap
            observed = now
        self._now = observed
        return observed

    def _observed_until(self, now: float) -> float:
        """The end of the observed time: `now`, unless there was a pause."""
        before = self._now if self._now is not None else self._begin(now)
        return max(before, now) if abs(now - before) <= self._pause else before

    def _begin(self, now: float) -> float:
        self._now = now
        for node in self._nodes.values():
            node.since, node.deadline = now, now + self._timeout
        return now


def _record(name: str, node: _Node, now: float) -> NodeRecord:
    """An overdue node is dead, even before the tick that declares it so."""
    is_overdue = node.state in ("alive", "starting") and now >= node.deadline
    state: NodeState = "dead" if is_overdue else node.state
    since = node.deadline if is_overdue else node.since
    alarm = None if is_overdue and not node.is_lost else node.alarm  # its own alarm, reported while alive
    return NodeRecord(name, node.kind, node.pid, node.url, state, since, node.epoch, alarm, host=node.host)
