"""How much a fleet has to bear at once: never more than it can recover from by itself. No I/O, no clock."""

from collections import Counter
from collections.abc import Mapping

from kopitiam.contracts.messages import NodeKind

MOST_DOWN = 2
STABLE_SECONDS = 60.0  # after so long a life the monitors forget how often a node had to be revived


class Bounds:
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
