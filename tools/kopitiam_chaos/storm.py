"""The strikes of a plan, one after the other, while somebody looks at what becomes of the victims."""

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from kopitiam_chaos.bounds import STABLE_SECONDS, Bounds
from kopitiam_chaos.ordeals import Ordeal
from kopitiam_chaos.plan import LEADER, Strike
from kopitiam_chaos.victims import Loss, Nodes

_LOOK_SECONDS = 0.1
Found = TypeVar("Found")


class Seen(Protocol):
    """The registry, as a witness sees it."""

    @property
    def nodes(self) -> Nodes: ...

    @property
    def leader(self) -> str | None: ...

    @property
    def runs_under_way(self) -> Mapping[str, str]: ...


class Struck(Protocol):
    def aim(self, name: str) -> Loss: ...

    def send(self, loss: Loss, number: signal.Signals) -> None: ...

    def is_noticed(self, loss: Loss, nodes: Nodes) -> bool: ...

    def is_replaced(self, loss: Loss, nodes: Nodes) -> bool: ...

    def is_well(self, name: str, nodes: Nodes) -> bool: ...

    def ailing(self, nodes: Nodes) -> list[str]: ...


@dataclass
class _Open:
    ordeal: Ordeal
    loss: Loss
    woken: float | None = None


@dataclass
class Storm:
    """`on_change` hears of every blow, notice and return."""

    victims: Struck
    witness: Seen
    bounds: Bounds
    patience_seconds: float
    settle_seconds: float  # one that woke is well if it still is after so long
    on_change: Callable[[Ordeal], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    ordeals: list[Ordeal] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _begun: float = 0.0
    _last: float = 0.0

    def rage(self, strikes: Sequence[Strike]) -> bool:
        """Whether all victims came back, and the fleet is whole. Nobody is left frozen, whatever happens."""
        self._begun = self._last = self.now()
        try:
            return all(map(self._strike, strikes)) and self._calms_down()
        finally:
            for hurt in self._open:
                if hurt.ordeal.deed == "freeze":
                    self.victims.send(hurt.loss, signal.SIGCONT)

    def _strike(self, strike: Strike) -> bool:
        """Whether there was somebody to strike before patience ran out."""
        due = self._last + strike.pause_seconds
        if not self._until(lambda: self.now() >= due):
            return False
        name = self._until(lambda: self._victim(strike.target), 2 * self.patience_seconds + STABLE_SECONDS)
        if name is not None:
            self._hurt(strike, name)
        return name is not None

    def _hurt(self, strike: Strike, name: str) -> None:
        """Known before it is done: an interrupt at any point finds whom to wake."""
        was_leader = name == self.witness.leader
        loss = self.victims.aim(name)
        self.bounds.on_struck(name, self.now())
        self._last = loss.at
        at, hold = loss.at - self._begun, strike.hold_seconds
        under_way = dict(self.witness.runs_under_way)
        ordeal = Ordeal(strike.number, name, strike.deed, at, was_leader, hold, runs_under_way=under_way)
        self.ordeals.append(ordeal)
        self._open.append(_Open(ordeal, loss))
        self.victims.send(loss, signal.SIGKILL if strike.deed == "kill" else signal.SIGSTOP)
        self.on_change(ordeal)

    def _victim(self, target: str) -> str | None:
        """Nobody as long as no run is under way, the fleet has enough to bear, or the target is not well."""
        if not self.witness.runs_under_way:
            return None
        name = self.witness.leader if target == LEADER else target
        if name is None or not self.bounds.allow(name, self.now()):
            return None
        return name if self.victims.is_well(name, self.witness.nodes) else None

    def _calms_down(self) -> bool:
        is_over = self._until(lambda: not self._open)
        return bool(is_over and self._until(self._is_whole, self.patience_seconds))

    def _until(self, find: Callable[[], Found], patience_seconds: float = math.inf) -> Found | None:
        """What is found, as soon as it is something; None if that takes longer than there is patience, or
        if a victim does not come back in time."""
        begun = self.now()
        while not (found := find()):
            self._look()
            if self._is_hopeless() or self.now() - begun > patience_seconds:
                return None
            self.sleep(_LOOK_SECONDS)
        return found

    def _is_hopeless(self) -> bool:
        return any(
            self.now() - hurt.loss.at > self.patience_seconds + hurt.ordeal.hold_seconds
            for hurt in self._open
        )

    def _look(self) -> None:
        for hurt in list(self._open):
            since = self.now() - hurt.loss.at
            is_due = hurt.ordeal.deed == "freeze" and since >= hurt.ordeal.hold_seconds
            if is_due and hurt.woken is None:
                self.victims.send(hurt.loss, signal.SIGCONT)
                hurt.woken = self.now()
            self._note(hurt, since)

    def _note(self, hurt: _Open, since: float) -> None:
        ordeal, nodes = hurt.ordeal, self.witness.nodes
        if ordeal.noticed_seconds is None and self.victims.is_noticed(hurt.loss, nodes):
            ordeal.noticed_seconds = since
            self.on_change(ordeal)
        if ordeal.revived_seconds is None:
            ordeal.is_replaced = self.victims.is_replaced(hurt.loss, nodes)
            if ordeal.is_replaced or self._is_awake(hurt):
                ordeal.revived_seconds = since
                self.bounds.on_back(ordeal.name, self.now())
                self.on_change(ordeal)
        is_over = ordeal.deed == "kill" or hurt.woken is not None
        if ordeal.revived_seconds is not None and is_over:
            self._open.remove(hurt)

    def _is_awake(self, hurt: _Open) -> bool:
        if hurt.woken is None or self.now() - hurt.woken < self.settle_seconds:
            return False
        return self.victims.is_well(hurt.ordeal.name, self.witness.nodes)

    def _is_whole(self) -> bool:
        return self.witness.leader is not None and not self.victims.ailing(self.witness.nodes)
