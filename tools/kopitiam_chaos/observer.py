"""Somebody who looks at the registry all the time, and remembers what was there."""

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import NodeRecord
from kopitiam.contracts.runs import OVER
from kopitiam.fleet.home import FleetHome
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.registry import Registry
from kopitiam.registry.schema import leases, runs
from kopitiam.supervision.actions import read_actions

_LOOK_SECONDS = 0.1
_LEADERSHIP = "leader"
Seen = TypeVar("Seen")


class RegistryObserver:
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
        self._logs = _Logs(FleetHome(settings.home), self._monitors)
        self._runs_under_way: dict[str, str] = {}
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

    @property
    def runs_under_way(self) -> dict[str, str]:
        """The states of all runs that were not over at the last look that succeeded."""
        return self._runs_under_way

    def epochs(self, lease: str) -> list[int]:
        return [epoch for epoch, _ in self._holders[lease]]

    def states(self, name: str) -> list[str]:
        return [node.state for node in self._lives[name]]

    def pids(self, name: str) -> set[int]:
        """Of the processes that stood for the node; before its first heartbeat a new one is not known."""
        return {node.pid for node in self._lives[name] if node.pid is not None}

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

    def actions_by_epoch(self) -> dict[int, dict[str, int]]:
        """How many actions each monitor has logged under an epoch since the witness began to look."""
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for name in self._monitors:
            for action in read_actions(self._logs.since_begin(name)):
                counts[action.epoch][name] += 1
        return {epoch: dict(counts[epoch]) for epoch in sorted(counts)}

    def flaws(self) -> list[str]:
        """Epochs that went back, had two holders, or under which a monitor acted that did not hold them."""
        found = []
        leaders = self.leaders_by_epoch()
        for epoch, actors in self.actions_by_epoch().items():
            if len(actors) > 1:
                found.append(f"leader: two monitors acted under epoch {epoch}: {actors}")
            if epoch in leaders and (strangers := actors.keys() - leaders[epoch]):
                found.append(
                    f"leader: {', '.join(sorted(strangers))} acted under epoch {epoch} of {leaders[epoch]}"
                )
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
                under_way = connection.execute(
                    select(runs.c.run, runs.c.state).where(runs.c.state.not_in(OVER))
                )
                runs_under_way = {row.run: row.state for row in under_way}
            nodes = {node.name: node for node in self._registry.nodes()}
        except (DBAPIError, Unavailable):  # PostgreSQL may have been killed
            return
        for lease, epoch, holder in held:
            _note(self._holders[lease], (epoch, holder))
        for name, node in nodes.items():
            _note(self._lives[name], node)
        self._nodes = nodes
        self._runs_under_way = runs_under_way


class _Logs:
    """What monitors have written to their logs since this object was made."""

    def __init__(self, home: FleetHome, names: Sequence[str]) -> None:
        self._home = home
        self._begins = {name: len(self._read(name)) for name in names}

    def since_begin(self, name: str) -> str:
        """All of it if the log is shorter than it was: then it has been rotated."""
        log = self._read(name)
        begin = self._begins[name]
        return (log[begin:] if len(log) >= begin else log).decode(errors="replace")

    def _read(self, name: str) -> bytes:
        path = self._home.log(name)
        older = path.with_name(f"{path.name}.1")
        return b"".join(each.read_bytes() for each in (older, path) if each.exists())


def _note(seen: list[Seen], now: Seen) -> None:
    if not seen or seen[-1] != now:
        seen.append(now)
