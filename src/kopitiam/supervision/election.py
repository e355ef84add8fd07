"""Leader election by the Bully algorithm, from the view of one monitor: time and messages in, actions out.

Bully alone may elect two leaders when messages are lost. Here a candidate without a higher peer only requests
the next epoch from the registry, and leads once it is granted. An epoch has one holder, and the registry
rejects writes under any older epoch: to lead is to hold the current epoch. A leader that does not know yet
that its epoch is stale can change nothing.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

MAX_ANSWERED = 3  # elections in a row that a higher peer may answer


class State(StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"  # awaits answers of higher ids, or the registry's grant
    WAITING = "waiting"  # for a higher peer's announcement, or after a refused epoch
    LEADER = "leader"


@dataclass(frozen=True)
class SendElection:
    to: tuple[int, ...]


@dataclass(frozen=True)
class SendAnswer:
    to: int


@dataclass(frozen=True)
class TakeEpoch:
    """Request the next epoch from the registry, which grants it over a lower id or an expired lease."""


@dataclass(frozen=True)
class SendAnnouncement:
    epoch: int


@dataclass(frozen=True)
class StepDown:
    pass


ElectionAction = SendElection | SendAnswer | TakeEpoch | SendAnnouncement | StepDown


class Bully:
    """`epoch` is the greatest known epoch, `leader` its last known holder. A leader that learns of a greater
    epoch steps down."""

    def __init__(
        self,
        my_id: int,
        others: frozenset[int],
        answer_timeout_seconds: float,
        announcement_timeout_seconds: float,
        leader_timeout_seconds: float,
    ) -> None:
        self.my_id = my_id
        self.state = State.FOLLOWER
        self.leader: int | None = None
        self.epoch = 0
        self._others = others - {my_id}
        self._higher = tuple(sorted(peer for peer in self._others if peer > my_id))
        self._answer_seconds = answer_timeout_seconds
        self._announcement_seconds = announcement_timeout_seconds
        self._leader_seconds = leader_timeout_seconds
        self._deadline = -math.inf  # a monitor starts with an election
        self._has_requested = False  # requested an epoch in this election
        self._is_refused = False  # the registry refused the epoch
        self._answered = 0  # elections in a row that a higher peer answered without becoming leader

    def tick(self, now: float) -> list[ElectionAction]:
        if now < self._deadline:
            return []
        if self.state is State.CANDIDATE and not self._has_requested:
            return self._request_epoch(now)
        self.leader = None
        return self._elect(now)

    def on_election(self, sender: int, now: float) -> list[ElectionAction]:
        """A monitor that was refused the epoch does not answer, so that a lower one may lead. A leader
        announces itself instead of starting an election."""
        if sender not in self._others or sender > self.my_id or self._is_refused:
            return []
        if self.state is State.LEADER:
            return [SendAnswer(sender), SendAnnouncement(self.epoch)]
        return [SendAnswer(sender), *self.tick(now)]

    def on_answer(self, sender: int, now: float) -> list[ElectionAction]:
        """After `MAX_ANSWERED` answers without a leader, stop waiting for higher peers and let the registry
        decide: it grants no epoch to a lower id while a higher one holds the lease."""
        if self.state is State.CANDIDATE and sender in self._higher and self._answered < MAX_ANSWERED:
            self._answered += 1
            self._wait(now)
        return []

    def on_announcement(self, sender: int, epoch: int, now: float) -> list[ElectionAction]:
        """A leader announces itself when elected, and then with every heartbeat."""
        is_current = epoch > self.epoch or (epoch == self.epoch and self.leader in (None, sender))
        if sender not in self._others or not is_current:
            return []
        stepping_down: list[ElectionAction] = [StepDown()] if self.state is State.LEADER else []
        self.leader, self.epoch = sender, epoch
        if sender > self.my_id:
            self._follow(sender, now)
            return stepping_down
        if self.state in (State.CANDIDATE, State.WAITING):
            return []
        return [*stepping_down, *self._elect(now)]

    def on_leader_left(self, leader: int, now: float) -> list[ElectionAction]:
        """The leader stopped on purpose: elect at once, without waiting for its timeout."""
        if self.state is not State.FOLLOWER or leader != self.leader:
            return []
        self.leader = None
        return self._elect(now)

    def on_bus_restored(self, now: float) -> list[ElectionAction]:
        """After a bus outage, the current leader gets a full timeout to announce itself."""
        if self.state is not State.LEADER:
            self._follow(self.leader, now)
        return []

    def on_epoch_granted(self, epoch: int, now: float) -> list[ElectionAction]:  # noqa: ARG002
        """If no greater epoch is known, the grant makes this monitor the only leader."""
        if epoch < self.epoch or (self.state is State.LEADER and epoch == self.epoch):
            return []
        self.state, self.leader, self.epoch = State.LEADER, self.my_id, epoch
        self._deadline = math.inf
        self._is_refused = False
        self._answered = 0
        return [SendAnnouncement(epoch)]

    def on_epoch_refused(self, now: float) -> list[ElectionAction]:
        """A higher id holds the lease, or the registry is unavailable: wait, then try again."""
        if self.state in (State.CANDIDATE, State.WAITING):
            self._is_refused = True
            self._wait(now)
        return []

    def on_epoch_lost(self, now: float) -> list[ElectionAction]:
        """The registry rejected a write under the epoch."""
        if self.state is not State.LEADER:
            return []
        self.leader = None
        return [StepDown(), *self._elect(now)]

    def _elect(self, now: float) -> list[ElectionAction]:
        self.state = State.CANDIDATE
        if not self._higher:
            return self._request_epoch(now)
        self._has_requested = False
        self._deadline = now + self._answer_seconds
        return [SendElection(self._higher)]

    def _request_epoch(self, now: float) -> list[ElectionAction]:
        self._has_requested = True
        self._deadline = now + self._announcement_seconds
        return [TakeEpoch()]

    def _wait(self, now: float) -> None:
        self.state = State.WAITING
        self._deadline = now + self._announcement_seconds

    def _follow(self, leader: int | None, now: float) -> None:
        self.state, self.leader = State.FOLLOWER, leader
        self._deadline = now + self._leader_seconds
        self._is_refused = False
        self._answered = 0
