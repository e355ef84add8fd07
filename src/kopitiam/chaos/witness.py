"""Somebody who looks at the registry all the time, and remembers what was there."""

import threading
from collections import defaultdict
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.registry import Registry
from kopitiam.registry.schema import leases

_LOOK_SECONDS = 0.1
_LEADERSHIP = "leader"
Seen = TypeVar("Seen")


class Witness:
    """What it has seen is complete but for what came and went between two looks. A registry that is frozen
    holds it up; nobody else has to wait for that."""

    def __init__(self, settings: Settings) -> None:
        """With the addresses of the services in the settings."""
        self._monitors = settings.nodes.monitors
        engine = connect_engine(settings.registry.url, settings.home)
        self._registry = Registry(engine)
        self._reader = engine.execution_options(writes=False)
        self._nodes: dict[str, NodeRecord] = {}
        self._holders: dict[str, list[tuple[int, str]]] = defaultdict(list)  # epoch and holder by lease
        self._lives: dict[str, list[NodeRecord]] = defaultdict(list)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)
        self._registry.close()

    @property
    def nodes(self) -> dict[str, NodeRecord]:
        """As they were at the last look that succeeded."""
        return self._nodes

    @property
    def leader(self) -> str | None:
        return next((node.name for node in self._nodes.values() if node.leader), None)

    def epochs(self, lease: str) -> list[int]:
        return [epoch for epoch, _ in self._holders[lease]]

    def states(self, name: str) -> list[str]:
        return [node.state for node in self._lives[name]]

    def pids(self, name: str) -> set[int | None]:
        return {node.pid for node in self._lives[name]}

    def leaders(self) -> list[str]:
        """In the order in which they came to lead."""
        return [self._monitor(holder) for _, holder in self._holders[_LEADERSHIP] if holder]

    def leaders_by_epoch(self) -> dict[int, tuple[str, ...]]:
        """Every holder once; more than one of them in an epoch should never be."""
        seen: dict[int, dict[str, str]] = {}
        for epoch, holder in self._holders[_LEADERSHIP]:
            if holder:  # nobody has one that was given back
                seen.setdefault(epoch, {})[holder] = self._monitor(holder)
        return {epoch: tuple(holders.values()) for epoch, holders in sorted(seen.items())}

    def flaws(self) -> list[str]:
        """Epochs that went back, or had two holders."""
        found = []
        for lease, seen in self._holders.items():
            held = {(epoch, holder) for epoch, holder in seen if holder}
            if len(held) != len({epoch for epoch, _ in held}):
                found.append(f"{lease}: an epoch with two holders: {seen}")
            if not all(old <= new for (old, _), (new, _) in pairwise(seen)):
                found.append(f"{lease}: an epoch that went back: {seen}")
        for name, lives in self._lives.items():
            if not all(old.epoch <= new.epoch for old, new in pairwise(lives)):
                found.append(f"{name}: a life that went back: {lives}")
        return found

    def _monitor(self, holder: str) -> str:
        return self._monitors[int(holder.partition(" ")[0]) - 1]

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            with self._reader.connect() as connection:
                held = connection.execute(select(leases.c.name, leases.c.epoch, leases.c.holder)).all()
            nodes = {node.name: node for node in self._registry.nodes()}
        except (DBAPIError, Unavailable):  # PostgreSQL may have been killed
            return
        for lease, epoch, holder in held:
            _note(self._holders[lease], (epoch, holder))
        for name, node in nodes.items():
            _note(self._lives[name], node)
        self._nodes = nodes


def _note(seen: list[Seen], now: Seen) -> None:
    if not seen or seen[-1] != now:
        seen.append(now)
