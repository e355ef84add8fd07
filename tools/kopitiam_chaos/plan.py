"""The seeded plan of strikes (target, kind, pause), and the limits of what is struck at once. No I/O, no
clock."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind

StrikeKind = Literal["kill", "freeze"]
Groups = Mapping[str, tuple[str, ...]]  # names of similar nodes, by group
LEADER = "leader"
_FROZEN_SHARE = 0.4
MAX_DOWN = 2
STABLE_SECONDS = 60.0  # after which monitors reset the revival count of a node


@dataclass(frozen=True)
class Strike:
    number: int
    target: str  # the name of a node, or LEADER for the leader at that time
    deed: StrikeKind
    pause_seconds: float  # after the previous strike
    hold_seconds: float = 0.0  # duration of a freeze


@dataclass(frozen=True)
class Pace:
    """Ranges in seconds. A hold may be shorter or longer than the timeout after which a node is dead."""

    pause: tuple[float, float]
    hold: tuple[float, float]

    @classmethod
    def of(cls, timeout_seconds: float) -> "Pace":
        return cls(
            pause=(timeout_seconds / 4, timeout_seconds), hold=(timeout_seconds / 2, 2 * timeout_seconds)
        )


def groups_of(kinds: Mapping[str, NodeKind]) -> dict[str, tuple[str, ...]]:
    """Nodes by kind, services by type, and the leader as one more group. A single monitor is excluded, since
    no other could revive it."""
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
    """The groups, restricted to these names, groups or kinds. Raises `ConfigError` for an unknown one."""
    known = {name for names in groups.values() for name in names}
    for word in words:
        if word not in known | set(groups) | set(kinds.values()):
            raise ConfigError(f"--targets {word}: expected some of {', '.join([*groups, *sorted(known)])}")
    selected = {
        group: tuple(name for name in names if {name, group, kinds.get(name, LEADER)} & set(words))
        for group, names in groups.items()
    }
    return {group: names for group, names in selected.items() if names}


def plan(seed: int, kills: int, groups: Groups, pace: Pace, *, is_freezing: bool) -> tuple[Strike, ...]:
    """In rounds: each strikes every group once, in an order drawn from the seed."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    remaining: list[str] = []
    strikes = []
    for number in range(1, kills + 1):
        remaining = remaining or rng.sample(sorted(groups), len(groups))
        target = rng.choice(groups[remaining.pop()])
        pause, is_frozen = rng.uniform(*pace.pause), rng.random() < _FROZEN_SHARE
        hold = rng.uniform(*pace.hold)  # always drawn, so that the kills are the same without freezes
        strikes.append(
            Strike(number, target, "freeze", pause, hold)
            if is_freezing and is_frozen
            else Strike(number, target, "kill", pause)
        )
    return tuple(strikes)


class StrikeLimits:
    """Limits the strikes to what the fleet can recover from by itself.

    At most one service is down at once, and at least one monitor is up, to revive the others. No node is
    struck so often that the monitors would raise an alarm instead of reviving it.
    """

    def __init__(self, kinds: Mapping[str, NodeKind], revive_limit: int) -> None:
        self._kinds = kinds
        self._max_in_a_row = max(1, revive_limit // 2)  # one revival may take two attempts
        self._down: set[str] = set()
        self._in_a_row: Counter[str] = Counter()
        self._alive_since: dict[str, float] = {}

    @property
    def down(self) -> frozenset[str]:
        return frozenset(self._down)

    def allow(self, name: str, now: float) -> bool:
        if name in self._down or len(self._down) >= MAX_DOWN:
            return False
        if self._kinds[name] == "service" and self._down_of_kind("service"):
            return False
        monitors = [kind for kind in self._kinds.values() if kind == "monitor"]
        if self._kinds[name] == "monitor" and len(self._down_of_kind("monitor")) + 1 >= len(monitors):
            return False
        return self._is_stable(name, now) or self._in_a_row[name] < self._max_in_a_row

    def on_struck(self, name: str, now: float) -> None:
        if self._is_stable(name, now):
            self._in_a_row[name] = 0
        self._in_a_row[name] += 1
        self._down.add(name)

    def on_back(self, name: str, now: float) -> None:
        self._down.discard(name)
        self._alive_since[name] = now

    def _is_stable(self, name: str, now: float) -> bool:
        return now - self._alive_since.get(name, now) >= STABLE_SECONDS

    def _down_of_kind(self, kind: NodeKind) -> list[str]:
        return [name for name in self._down if self._kinds[name] == kind]
