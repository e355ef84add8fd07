"""Somebody who looks at the registry all the time, and remembers what was there."""

import threading
from collections import defaultdict
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar

from fleets import Fleet
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.schema import leases

_LOOK_SECONDS = 0.1
Seen = TypeVar("Seen")


class Witness:
    """What it has seen is complete but for what came and went between two looks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._engine = connect_engine(fleet.settings.registry.url, fleet.home)
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
        self._thread.join()
        self._engine.dispose()

    def epochs(self, lease: str) -> list[int]:
        return [epoch for epoch, _ in self._holders[lease]]

    def states(self, name: str) -> list[str]:
        return [node.state for node in self._lives[name]]

    def pids(self, name: str) -> set[int | None]:
        return {node.pid for node in self._lives[name]}

    def leaders(self) -> list[str]:
        """In the order in which they came to lead."""
        ids = [int(holder.split()[0]) for _, holder in self._holders["leader"] if holder]
        monitors = self._fleet.settings.nodes.monitors
        return [monitors[number - 1] for number in ids]

    def check_epochs(self) -> None:
        """They only grow, and each had one holder."""
        for lease, seen in self._holders.items():
            assert all(old <= new for (old, _), (new, _) in pairwise(seen)), (lease, seen)
            held = {(epoch, holder) for epoch, holder in seen if holder}  # nobody has one that was given back
            assert len(held) == len({epoch for epoch, _ in held}), (lease, seen)
        for name, lives in self._lives.items():
            assert all(old.epoch <= new.epoch for old, new in pairwise(lives)), (name, lives)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            with self._engine.connect() as connection:
                held = connection.execute(select(leases.c.name, leases.c.epoch, leases.c.holder)).all()
        except DBAPIError:  # PostgreSQL may have been killed
            return
        for lease, epoch, holder in held:
            _note(self._holders[lease], (epoch, holder))
        for name, node in self._fleet.nodes().items():
            _note(self._lives[name], node)


def _note(seen: list[Seen], now: Seen) -> None:
    if not seen or seen[-1] != now:
        seen.append(now)
