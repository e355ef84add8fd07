"""Polls the registry and the monitors' logs during a chaos run, and checks the rules of epochs."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
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

_POLL_SECONDS = 0.1
_LEADERSHIP = "leader"
Value = TypeVar("Value")


class RegistryObserver:
    """Records every change of leases, nodes and runs, except those shorter than a poll.

    It polls on its own thread, so that a frozen registry blocks no caller.
    """

    def __init__(self, settings: Settings, read_log: Callable[[str], bytes] | None = None) -> None:
        """`settings` must contain the addresses of the services. `read_log` reads the whole log of a monitor,
        on whatever machine it runs; without it only those of this machine are read."""
        self._monitors = settings.nodes.monitors
        engine = connect_engine(settings.registry.url, settings.home)
        self._registry = Registry(engine)
        self._reader = engine.execution_options(writes=False)
        self._nodes: dict[str, NodeRecord] = {}
        self._holders: dict[str, list[tuple[int, str]]] = defaultdict(list)  # epoch and holder by lease
        self._records: dict[str, list[NodeRecord]] = defaultdict(list)
        own_logs = FleetHome.of(settings)
        self._logs = _Logs(read_log or (lambda name: read_whole(own_logs.log(name))), self._monitors)
        self._runs_under_way: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> Self:
        self._poll()
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
        """As of the last successful poll."""
        return self._nodes

    @property
    def leader(self) -> str | None:
        return next((node.name for node in self._nodes.values() if node.leader), None)

    @property
    def runs_under_way(self) -> dict[str, str]:
        """The states of all unfinished runs, as of the last successful poll."""
        return self._runs_under_way

    def epochs(self, lease: str) -> list[int]:
        return [epoch for epoch, _ in self._holders[lease]]

    def states(self, name: str) -> list[str]:
        return [node.state for node in self._records[name]]

    def pids(self, name: str) -> set[int]:
        """All pids of the node so far; a new process is only known after its first heartbeat."""
        return {node.pid for node in self._records[name] if node.pid is not None}

    def leaders(self) -> list[str]:
        """In the order of their election."""
        return [self._monitor(holder) for _, holder in self._holders[_LEADERSHIP] if holder]

    def leaders_by_epoch(self) -> dict[int, tuple[str, ...]]:
        """Each holder once; an epoch must have only one."""
        history: dict[int, dict[str, str]] = {}
        for epoch, holder in self._holders[_LEADERSHIP]:
            if holder:  # empty if the lease was released
                history.setdefault(epoch, {})[holder] = self._monitor(holder)
        return {epoch: tuple(holders.values()) for epoch, holders in sorted(history.items())}

    def actions_by_epoch(self) -> dict[int, dict[str, int]]:
        """How many actions each monitor has logged under each epoch since this observer was created."""
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for name in self._monitors:
            for action in read_actions(self._logs.since_start(name)):
                counts[action.epoch][name] += 1
        return {epoch: dict(counts[epoch]) for epoch in sorted(counts)}

    def violations(self) -> list[str]:
        """Epochs that decreased, had two holders, or under which a monitor acted that did not hold them."""
        violations = []
        leaders = self.leaders_by_epoch()
        for epoch, actors in self.actions_by_epoch().items():
            if len(actors) > 1:
                violations.append(f"leader: two monitors acted under epoch {epoch}: {actors}")
            if epoch in leaders and (others := actors.keys() - leaders[epoch]):
                violations.append(
                    f"leader: {', '.join(sorted(others))} acted under epoch {epoch} of {leaders[epoch]}"
                )
        for lease, history in self._holders.items():
            held = {(epoch, holder) for epoch, holder in history if holder}
            if len(held) != len({epoch for epoch, _ in held}):
                violations.append(f"{lease}: an epoch with two holders: {history}")
            if not all(old <= new for (old, _), (new, _) in pairwise(history)):
                violations.append(f"{lease}: an epoch that went back: {history}")
        for name, records in self._records.items():
            if not all(old.epoch <= new.epoch for old, new in pairwise(records)):
                violations.append(f"{name}: an epoch that went back: {records}")
        return violations

    def _monitor(self, holder: str) -> str:
        return self._monitors[int(holder.partition(" ")[0]) - 1]

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            self._poll()

    def _poll(self) -> None:
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
            _append_if_changed(self._holders[lease], (epoch, holder))
        for name, node in nodes.items():
            _append_if_changed(self._records[name], node)
        self._nodes = nodes
        self._runs_under_way = runs_under_way


class _Logs:
    """The monitors' logs since this object was created."""

    def __init__(self, read: Callable[[str], bytes], names: Sequence[str]) -> None:
        self._read = read
        self._starts = {name: len(read(name)) for name in names}

    def since_start(self, name: str) -> str:
        """The whole log if it has become shorter, since it was rotated."""
        log = self._read(name)
        start = self._starts[name]
        return (log[start:] if len(log) >= start else log).decode(errors="replace")


def read_whole(log: Path) -> bytes:
    """A log with the older file that it was rotated to."""
    older = log.with_name(f"{log.name}.1")
    return b"".join(file.read_bytes() for file in (older, log) if file.exists())


def _append_if_changed(history: list[Value], now: Value) -> None:
    if not history or history[-1] != now:
        history.append(now)
