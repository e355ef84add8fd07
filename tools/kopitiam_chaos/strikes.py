"""The strikes of a plan, one after the other, while somebody looks at what becomes of the victims."""

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
_LOOK_SECONDS = 0.1
Found = TypeVar("Found")


@dataclass(frozen=True)
class StruckNode:
    """A node that is hurt: its process then, and all that are hurt with it."""

    name: str
    pid: int
    at: float
    processes: Sequence[psutil.Process] = field(default=(), repr=False)


class Victims:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kinds = fleet.settings.nodes.kinds
        self._probes = probes(fleet.settings)

    def pid_of(self, name: str) -> int | None:
        """Of the process that stands for the node now, if it lives; a frozen one lives."""
        process = self._process_of(name)
        return process.pid if process is not None else None

    def processes(self, name: str) -> list[psutil.Process]:
        """All processes of a node: a pipeline's Java, a broker's helpers, a database's backends."""
        if self._kinds[name] == "service":
            return find_service(name, self._fleet.settings).processes()
        return processes_of(self._fleet.home, name)

    def aim(self, name: str, *, alone: bool = False) -> StruckNode:
        """At the node with all its processes, as if its machine were lost; `alone`: at its first one only."""
        process = self._process_of(name)
        if process is None:
            raise ServiceError(f"{name} does not run")
        aimed_at = [process] if alone else self.processes(name)
        return StruckNode(name, process.pid, time.monotonic(), tuple(aimed_at))

    def send(self, loss: StruckNode, number: signal.Signals) -> None:
        """To those that are still there; a number that went to another process is spared."""
        for process in loss.processes:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if process.is_running():
                    os.kill(process.pid, number)

    def is_noticed(self, loss: StruckNode, nodes: Nodes) -> bool:
        """Somebody has declared it dead, or started it anew already."""
        node = nodes.get(loss.name)
        return self.pid_of(loss.name) not in (None, loss.pid) or (node is not None and node.state == "dead")

    def is_replaced(self, loss: StruckNode, nodes: Nodes) -> bool:
        """Another process stands for the node, and does its work."""
        return self.pid_of(loss.name) != loss.pid and self.is_healthy(loss.name, nodes)

    def is_healthy(self, name: str, nodes: Nodes) -> bool:
        """It runs and has said so; a service answers."""
        process = self._process_of(name)
        if process is None or process_state(process) != "running":
            return False
        if name in self._probes:
            return self._probes[name]()
        node = nodes.get(name)
        return node is not None and (node.state, node.pid) == ("alive", process.pid)

    def unhealthy(self, nodes: Nodes) -> list[str]:
        """All that are not well, as this machine and the registry see it."""
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


class Seen(Protocol):
    """The registry, as a witness sees it."""

    @property
    def nodes(self) -> Nodes: ...

    @property
    def leader(self) -> str | None: ...

    @property
    def runs_under_way(self) -> Mapping[str, str]: ...


class Struck(Protocol):
    def aim(self, name: str) -> StruckNode: ...

    def send(self, loss: StruckNode, number: signal.Signals) -> None: ...

    def is_noticed(self, loss: StruckNode, nodes: Nodes) -> bool: ...

    def is_replaced(self, loss: StruckNode, nodes: Nodes) -> bool: ...

    def is_healthy(self, name: str, nodes: Nodes) -> bool: ...

    def unhealthy(self, nodes: Nodes) -> list[str]: ...


@dataclass
class _Open:
    record: StrikeRecord
    loss: StruckNode
    woken: float | None = None


@dataclass
class StrikeRunner:
    """`on_change` hears of every blow, notice and return."""

    victims: Struck
    witness: Seen
    bounds: StrikeLimits
    patience_seconds: float
    settle_seconds: float  # one that woke is well if it still is after so long
    on_change: Callable[[StrikeRecord], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    records: list[StrikeRecord] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _begun: float = 0.0
    _last: float = 0.0

    def run_strikes(self, strikes: Sequence[Strike]) -> bool:
        """Whether all victims came back, and the fleet is whole. Nobody is left frozen, whatever happens."""
        self._begun = self._last = self.now()
        try:
            return all(map(self._strike, strikes)) and self._calms_down()
        finally:
            for hurt in self._open:
                if hurt.record.deed == "freeze":
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
        record = StrikeRecord(
            strike.number, name, strike.deed, at, was_leader, hold, runs_under_way=under_way
        )
        self.records.append(record)
        self._open.append(_Open(record, loss))
        self.victims.send(loss, signal.SIGKILL if strike.deed == "kill" else signal.SIGSTOP)
        self.on_change(record)

    def _victim(self, target: str) -> str | None:
        """Nobody as long as no run is under way, the fleet has enough to bear, or the target is not well."""
        if not self.witness.runs_under_way:
            return None
        name = self.witness.leader if target == LEADER else target
        if name is None or not self.bounds.allow(name, self.now()):
            return None
        return name if self.victims.is_healthy(name, self.witness.nodes) else None

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
            self.now() - hurt.loss.at > self.patience_seconds + hurt.record.hold_seconds
            for hurt in self._open
        )

    def _look(self) -> None:
        for hurt in list(self._open):
            since = self.now() - hurt.loss.at
            is_due = hurt.record.deed == "freeze" and since >= hurt.record.hold_seconds
            if is_due and hurt.woken is None:
                self.victims.send(hurt.loss, signal.SIGCONT)
                hurt.woken = self.now()
            self._note(hurt, since)

    def _note(self, hurt: _Open, since: float) -> None:
        record, nodes = hurt.record, self.witness.nodes
        if record.noticed_seconds is None and self.victims.is_noticed(hurt.loss, nodes):
            record.noticed_seconds = since
            self.on_change(record)
        if record.revived_seconds is None:
            record.is_replaced = self.victims.is_replaced(hurt.loss, nodes)
            if record.is_replaced or self._is_awake(hurt):
                record.revived_seconds = since
                self.bounds.on_back(record.name, self.now())
                self.on_change(record)
        is_over = record.deed == "kill" or hurt.woken is not None
        if record.revived_seconds is not None and is_over:
            self._open.remove(hurt)

    def _is_awake(self, hurt: _Open) -> bool:
        if hurt.woken is None or self.now() - hurt.woken < self.settle_seconds:
            return False
        return self.victims.is_healthy(hurt.record.name, self.witness.nodes)

    def _is_whole(self) -> bool:
        return self.witness.leader is not None and not self.victims.unhealthy(self.witness.nodes)
