"""Who is struck, how, and after which pause: all of it follows from a seed. No I/O, no clock."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind

StrikeKind = Literal["kill", "freeze"]
Groups = Mapping[str, tuple[str, ...]]  # nodes that are alike, by what they are alike in
LEADER = "leader"
_FROZEN_SHARE = 0.4
MOST_DOWN = 2
STABLE_SECONDS = 60.0  # after so long a life the monitors forget how often a node had to be revived


@dataclass(frozen=True)
class Strike:
    number: int
    target: str  # the name of a node, or LEADER: whoever leads when the time has come
    deed: StrikeKind
    pause_seconds: float  # after the strike before
    hold_seconds: float = 0.0  # how long a frozen one stands still


@dataclass(frozen=True)
class Pace:
    """From and to, in seconds. A hold may be shorter than it takes to be declared dead, or longer."""

    pause: tuple[float, float]
    hold: tuple[float, float]

    @classmethod
    def of(cls, timeout_seconds: float) -> "Pace":
        return cls(
            pause=(timeout_seconds / 4, timeout_seconds), hold=(timeout_seconds / 2, 2 * timeout_seconds)
        )


def groups_of(kinds: Mapping[str, NodeKind]) -> dict[str, tuple[str, ...]]:
    """Nodes by their kind, services by what they are; the leader is one more to strike. A monitor that is
    the only one is left alone, since nobody would revive it."""
    groups: dict[str, tuple[str, ...]] = {}
    for name, kind in kinds.items():
        group = re.sub(r"-\d+$", "", name) if kind == "service" else kind
        groups[group] = (*groups.get(group, ()), name)
    if len(groups.get("monitor", ())) > 1:
        groups[LEADER] = (LEADER,)
    else:
        groups.pop("monitor", None)
    return groups


def chosen(groups: Groups, kinds: Mapping[str, NodeKind], words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What is left of the groups if only these names, groups or kinds are to be struck."""
    known = {name for names in groups.values() for name in names}
    for word in words:
        if word not in known | set(groups) | set(kinds.values()):
            raise ConfigError(f"--targets {word}: want some of {', '.join([*groups, *sorted(known)])}")
    left = {
        group: tuple(name for name in names if {name, group, kinds.get(name, LEADER)} & set(words))
        for group, names in groups.items()
    }
    return {group: names for group, names in left.items() if names}


def plan(seed: int, kills: int, groups: Groups, pace: Pace, *, is_freezing: bool) -> tuple[Strike, ...]:
    """Round by round, every group once in each, in an order that the seed gives."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    left: list[str] = []
    strikes = []
    for number in range(1, kills + 1):
        left = left or dice.sample(sorted(groups), len(groups))
        target = dice.choice(groups[left.pop()])
        pause, is_frozen = dice.uniform(*pace.pause), dice.random() < _FROZEN_SHARE
        hold = dice.uniform(*pace.hold)  # asked for in any case: kills stay the same with and without freezes
        strikes.append(
            Strike(number, target, "freeze", pause, hold)
            if is_freezing and is_frozen
            else Strike(number, target, "kill", pause)
        )
    return tuple(strikes)


class StrikeLimits:
    """One service at most is down, and one monitor at least is not: it revives the others. Nobody is struck
    so often that the monitors would give it up."""

    def __init__(self, kinds: Mapping[str, NodeKind], revive_limit: int) -> None:
        self._kinds = kinds
        self._most_in_a_row = max(1, revive_limit // 2)  # one death may need two attempts
        self._down: set[str] = set()
        self._in_a_row: Counter[str] = Counter()
        self._lives_since: dict[str, float] = {}

    @property
    def down(self) -> frozenset[str]:
        return frozenset(self._down)

    def allow(self, name: str, now: float) -> bool:
        if name in self._down or len(self._down) >= MOST_DOWN:
            return False
        if self._kinds[name] == "service" and self._of_kind("service"):
            return False
        monitors = [kind for kind in self._kinds.values() if kind == "monitor"]
        if self._kinds[name] == "monitor" and len(self._of_kind("monitor")) + 1 >= len(monitors):
            return False
        return self._has_rested(name, now) or self._in_a_row[name] < self._most_in_a_row

    def on_struck(self, name: str, now: float) -> None:
        if self._has_rested(name, now):
            self._in_a_row[name] = 0
        self._in_a_row[name] += 1
        self._down.add(name)

    def on_back(self, name: str, now: float) -> None:
        self._down.discard(name)
        self._lives_since[name] = now

    def _has_rested(self, name: str, now: float) -> bool:
        return now - self._lives_since.get(name, now) >= STABLE_SECONDS

    def _of_kind(self, kind: NodeKind) -> list[str]:
        return [name for name in self._down if self._kinds[name] == kind]
