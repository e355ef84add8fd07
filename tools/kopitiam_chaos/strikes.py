"""Strikes against nodes of a fleet: the processes of the victims, the signals, and the wait for recovery."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import psutil

from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.messages import NodeRecord
from kopitiam.fleet.home import read_record
from kopitiam.fleet.lifecycle import Fleet
from kopitiam.fleet.processes import process_state, processes_of
from kopitiam.fleet.services import find_service, probes
from kopitiam_chaos.plan import LEADER, STABLE_SECONDS, Strike, StrikeLimits
from kopitiam_chaos.report import StrikeRecord

Nodes = Mapping[str, NodeRecord]  # as the registry knows them
_POLL_SECONDS = 0.1
Result = TypeVar("Result")


@dataclass(frozen=True)
class StruckNode:
    """A node of this machine at the time of its strike: its main process, and all processes that are
    struck."""

    name: str
    pid: int
    at: float
    processes: Sequence[psutil.Process] = field(default=(), repr=False)
    host: str = ""


class Victims:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kinds = fleet.settings.nodes.kinds
        self._probes = probes(fleet.settings)

    def pid_of(self, name: str) -> int | None:
        """The pid of the node's process, frozen or not; None if it has ended."""
        process = self._process_of(name)
        return process.pid if process is not None else None

    def processes(self, name: str) -> list[psutil.Process]:
        """All processes of a node, such as a pipeline's JVM or a database's backends."""
        if self._kinds[name] == "service":
            return find_service(name, self._fleet.settings).processes()
        return processes_of(self._fleet.home, name)

    def aim(self, name: str, *, alone: bool = False) -> StruckNode:
        """Select all processes of a node, as if its machine were lost, or only the main one if `alone`.

        Raises `ServiceError` if the node is not running.
        """
        process = self._process_of(name)
        if process is None:
            raise ServiceError(f"{name} does not run")
        aimed_at = [process] if alone else self.processes(name)
        return StruckNode(name, process.pid, time.monotonic(), tuple(aimed_at), self._fleet.settings.host)

    def send(self, struck: StruckNode, number: signal.Signals) -> None:
        """To the processes that still exist; a reused pid is not signalled."""
        for process in struck.processes:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if process.is_running():
                    os.kill(process.pid, number)

    def is_noticed(self, struck: StruckNode, nodes: Nodes) -> bool:
        """It was declared dead, or a new process was started."""
        node = nodes.get(struck.name)
        return self.pid_of(struck.name) not in (None, struck.pid) or (
            node is not None and node.state == "dead"
        )

    def is_replaced(self, struck: StruckNode, nodes: Nodes) -> bool:
        """A new process of the node is healthy."""
        return self.pid_of(struck.name) != struck.pid and self.is_healthy(struck.name, nodes)

    def is_healthy(self, name: str, nodes: Nodes) -> bool:
        """It is running, as far as this machine can see it, and its record says so; a service answers its
        probe."""
        if not self._fleet.settings.is_here(name):
            is_alive = name in nodes and nodes[name].state == "alive"
            return self._probes[name]() if name in self._probes else is_alive
        process = self._process_of(name)
        if process is None or process_state(process) != "running":
            return False
        if name in self._probes:
            return self._probes[name]()
        node = nodes.get(name)
        return node is not None and (node.state, node.pid) == ("alive", process.pid)

    def unhealthy(self, nodes: Nodes) -> list[str]:
        """All nodes that are not healthy on this machine or in the registry."""
        return [
            name
            for name, kind in self._kinds.items()
            if not self.is_healthy(name, nodes)
            or (kind == "service" and not (name in nodes and nodes[name].state == "alive"))
        ]

    def _process_of(self, name: str) -> psutil.Process | None:
        record = read_record(self._fleet.home, name)
        process = record.process() if record else None
        return process if process_state(process) != "gone" else None


class ObserverPort(Protocol):
    """What a `RegistryObserver` reads from the registry."""

    @property
    def nodes(self) -> Nodes: ...

    @property
    def leader(self) -> str | None: ...

    @property
    def runs_under_way(self) -> Mapping[str, str]: ...


class VictimsPort(Protocol):
    def aim(self, name: str) -> StruckNode: ...

    def send(self, struck: StruckNode, number: signal.Signals) -> None: ...

    def is_noticed(self, struck: StruckNode, nodes: Nodes) -> bool: ...

    def is_replaced(self, struck: StruckNode, nodes: Nodes) -> bool: ...

    def is_healthy(self, name: str, nodes: Nodes) -> bool: ...

    def unhealthy(self, nodes: Nodes) -> list[str]: ...


@dataclass
class _OpenStrike:
    record: StrikeRecord
    struck: StruckNode
    woken: float | None = None


@dataclass
class StrikeRunner:
    """Carries out strikes one after the other, and follows the victims until they recover.

    `on_change` is called for every strike, detection and recovery.
    """

    victims: VictimsPort
    observer: ObserverPort
    bounds: StrikeLimits
    patience_seconds: float
    settle_seconds: float  # a woken node has recovered if it stays healthy for this long
    on_change: Callable[[StrikeRecord], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    records: list[StrikeRecord] = field(default_factory=list)
    _open: list[_OpenStrike] = field(default_factory=list)
    _begun: float = 0.0
    _last: float = 0.0

    def run_strikes(self, strikes: Sequence[Strike]) -> bool:
        """Returns whether all victims recovered and the fleet is healthy. Leaves no node frozen, even on
        errors."""
        self._begun = self._last = self.now()
        try:
            return all(map(self._strike, strikes)) and self._recovers()
        finally:
            for strike in self._open:
                if strike.record.deed == "freeze":
                    self.victims.send(strike.struck, signal.SIGCONT)

    def _strike(self, strike: Strike) -> bool:
        """Returns False if no allowed target was healthy in time."""
        due = self._last + strike.pause_seconds
        if not self._until(lambda: self.now() >= due):
            return False
        name = self._until(lambda: self._victim(strike.target), 2 * self.patience_seconds + STABLE_SECONDS)
        if name is not None:
            self._strike_node(strike, name)
        return name is not None

    def _strike_node(self, strike: Strike, name: str) -> None:
        """Recorded before the signal is sent: an interrupt at any point still finds the frozen processes."""
        was_leader = name == self.observer.leader
        struck = self.victims.aim(name)
        self.bounds.on_struck(name, self.now())
        self._last = struck.at
        record = StrikeRecord(
            strike.number,
            name,
            strike.deed,
            struck.at - self._begun,
            struck.host,
            was_leader,
            strike.hold_seconds,
            runs_under_way=dict(self.observer.runs_under_way),
        )
        self.records.append(record)
        self._open.append(_OpenStrike(record, struck))
        self.victims.send(struck, signal.SIGKILL if strike.deed == "kill" else signal.SIGSTOP)
        self.on_change(record)

    def _victim(self, target: str) -> str | None:
        """None while no run is under way, the limits forbid the strike, or the target is not healthy."""
        if not self.observer.runs_under_way:
            return None
        name = self.observer.leader if target == LEADER else target
        if name is None or not self.bounds.allow(name, self.now()):
            return None
        return name if self.victims.is_healthy(name, self.observer.nodes) else None

    def _recovers(self) -> bool:
        is_over = self._until(lambda: not self._open)
        return bool(is_over and self._until(self._is_healthy, self.patience_seconds))

    def _until(self, find: Callable[[], Result], patience_seconds: float = math.inf) -> Result | None:
        """Poll `find` until it returns something true; None on timeout, or if a victim does not recover in
        time."""
        begun = self.now()
        while not (result := find()):
            self._poll()
            if self._is_overdue() or self.now() - begun > patience_seconds:
                return None
            self.sleep(_POLL_SECONDS)
        return result

    def _is_overdue(self) -> bool:
        return any(
            self.now() - strike.struck.at > self.patience_seconds + strike.record.hold_seconds
            for strike in self._open
        )

    def _poll(self) -> None:
        for strike in list(self._open):
            since = self.now() - strike.struck.at
            is_due = strike.record.deed == "freeze" and since >= strike.record.hold_seconds
            if is_due and strike.woken is None:
                self.victims.send(strike.struck, signal.SIGCONT)
                strike.woken = self.now()
            self._update(strike, since)

    def _update(self, strike: _OpenStrike, since: float) -> None:
        record, nodes = strike.record, self.observer.nodes
        if record.noticed_seconds is None and self.victims.is_noticed(strike.struck, nodes):
            record.noticed_seconds = since
            self.on_change(record)
        if record.revived_seconds is None:
            record.is_replaced = self.victims.is_replaced(strike.struck, nodes)
            if record.is_replaced or self._has_woken(strike):
                record.revived_seconds = since
                self.bounds.on_back(record.name, self.now())
                self.on_change(record)
        is_over = record.deed == "kill" or strike.woken is not None
        if record.revived_seconds is not None and is_over:
            self._open.remove(strike)

    def _has_woken(self, strike: _OpenStrike) -> bool:
        if strike.woken is None or self.now() - strike.woken < self.settle_seconds:
            return False
        return self.victims.is_healthy(strike.record.name, self.observer.nodes)

    def _is_healthy(self) -> bool:
        return self.observer.leader is not None and not self.victims.unhealthy(self.observer.nodes)
