"""Which monitor leads: Bully, as one monitor plays it. Time and messages in, actions out.

Bully alone may give two leaders when messages are lost. Here a candidate that hears of nobody higher only
asks the registry for the next epoch, and leads once it is granted. An epoch has one holder, and the registry
refuses what is written under any but the last: to lead is to hold the current epoch. Whoever leads and has
not yet heard that its epoch is over does no harm.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

MOST_ANSWERED = 3  # elections in a row


class State(StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"  # has asked those with higher ids, or nobody is left to ask but the registry
    WAITING = "waiting"  # a higher one lives, and has to say that it leads; or the registry did not grant
    LEADER = "leader"


@dataclass(frozen=True)
class SendElection:
    to: tuple[int, ...]


@dataclass(frozen=True)
class SendAnswer:
    to: int


@dataclass(frozen=True)
class TakeEpoch:
    """Asks the registry for the next epoch: from a lower id it is taken, from a dead one it is free."""


@dataclass(frozen=True)
class SendAnnouncement:
    epoch: int


@dataclass(frozen=True)
class StepDown:
    pass


ElectionAction = SendElection | SendAnswer | TakeEpoch | SendAnnouncement | StepDown


class Bully:
    """`epoch` is the greatest known, and `leader` who was last known to hold it. The leader's own epoch is
    never behind: whoever learns of a greater one steps down."""

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
        self._higher = tuple(sorted(each for each in self._others if each > my_id))
        self._answer_seconds = answer_timeout_seconds
        self._announcement_seconds = announcement_timeout_seconds
        self._leader_seconds = leader_timeout_seconds
        self._deadline = -math.inf  # whoever comes, or comes back, begins with an election
        self._has_asked = False  # for an epoch, in this election
        self._is_shut_out = False  # the registry gave no epoch
        self._answered = 0  # elections in a row that a higher one answered, without any leader

    def tick(self, now: float) -> list[ElectionAction]:
        if now < self._deadline:
            return []
        if self.state is State.CANDIDATE and not self._has_asked:
            return self._ask(now)
        self.leader = None
        return self._elect(now)

    def on_election(self, sender: int, now: float) -> list[ElectionAction]:
        """Whoever could not lead now says nothing, so that a lower one may. A living leader is told of, and
        not elected again."""
        if sender not in self._others or sender > self.my_id or self._is_shut_out:
            return []
        if self.state is State.LEADER:
            return [SendAnswer(sender), SendAnnouncement(self.epoch)]
        return [SendAnswer(sender), *self.tick(now)]

    def on_answer(self, sender: int, now: float) -> list[ElectionAction]:
        """Higher ones that answer election after election, and never lead, are not waited for: the registry
        decides. It gives nothing to a lower one while a higher one holds the lease."""
        if self.state is State.CANDIDATE and sender in self._higher and self._answered < MOST_ANSWERED:
            self._answered += 1
            self._wait(now)
        return []

    def on_announcement(self, sender: int, epoch: int, now: float) -> list[ElectionAction]:
        """Said once when it begins to lead, and again and again while it does."""
        is_news = epoch > self.epoch or (epoch == self.epoch and self.leader in (None, sender))
        if sender not in self._others or not is_news:
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
        """It said goodbye, and need not be missed first."""
        if self.state is not State.FOLLOWER or leader != self.leader:
            return []
        self.leader = None
        return self._elect(now)

    def on_hearing_again(self, now: float) -> list[ElectionAction]:
        """It heard nobody for long: whoever leads has time to say so before anybody is elected."""
        if self.state is not State.LEADER:
            self._follow(self.leader, now)
        return []

    def on_epoch_granted(self, epoch: int, now: float) -> list[ElectionAction]:  # noqa: ARG002
        """Whatever was heard meanwhile: if the epoch is not behind, nobody else can lead now."""
        if epoch < self.epoch or (self.state is State.LEADER and epoch == self.epoch):
            return []
        self.state, self.leader, self.epoch = State.LEADER, self.my_id, epoch
        self._deadline = math.inf
        self._is_shut_out = False
        self._answered = 0
        return [SendAnnouncement(epoch)]

    def on_epoch_refused(self, now: float) -> list[ElectionAction]:
        """A higher one holds it, and will be heard of; or the registry cannot be reached: try again, but not
        at once."""
        if self.state in (State.CANDIDATE, State.WAITING):
            self._is_shut_out = True
            self._wait(now)
        return []

    def on_epoch_lost(self, now: float) -> list[ElectionAction]:
        """The registry no longer takes what is written under the epoch."""
        if self.state is not State.LEADER:
            return []
        self.leader = None
        return [StepDown(), *self._elect(now)]

    def _elect(self, now: float) -> list[ElectionAction]:
        self.state = State.CANDIDATE
        if not self._higher:
            return self._ask(now)
        self._has_asked = False
        self._deadline = now + self._answer_seconds
        return [SendElection(self._higher)]

    def _ask(self, now: float) -> list[ElectionAction]:
        self._has_asked = True
        self._deadline = now + self._announcement_seconds
        return [TakeEpoch()]

    def _wait(self, now: float) -> None:
        self.state = State.WAITING
        self._deadline = now + self._announcement_seconds

    def _follow(self, leader: int | None, now: float) -> None:
        self.state, self.leader = State.FOLLOWER, leader
        self._deadline = now + self._leader_seconds
        self._is_shut_out = False
        self._answered = 0
