"""The processes behind the nodes of a fleet: how they are hurt, and how one sees that they are back."""

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.fleet.families import condition
from kopitiam.fleet.nodes import Fleet
from kopitiam.fleet.processes import family_of
from kopitiam.fleet.records import read_record
from kopitiam.fleet.services import find_service, probes

Nodes = Mapping[str, NodeRecord]  # as the registry knows them


@dataclass(frozen=True)
class Loss:
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

    def family(self, name: str) -> list[psutil.Process]:
        """All processes of a node: a pipeline's Java, a broker's helpers, a database's backends."""
        if self._kinds[name] == "service":
            return find_service(name, self._fleet.settings).family()
        return family_of(self._fleet.home, name)

    def aim(self, name: str, *, alone: bool = False) -> Loss:
        """At the node with all its processes, as if its machine were lost; `alone`: at its first one only."""
        process = self._process_of(name)
        if process is None:
            raise ServiceError(f"{name} does not run")
        aimed_at = [process] if alone else self.family(name)
        return Loss(name, process.pid, time.monotonic(), tuple(aimed_at))

    def send(self, loss: Loss, number: signal.Signals) -> None:
        """To those that are still there; a number that went to another process is spared."""
        for process in loss.processes:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if process.is_running():
                    os.kill(process.pid, number)

    def is_noticed(self, loss: Loss, nodes: Nodes) -> bool:
        """Somebody has declared it dead, or started it anew already."""
        node = nodes.get(loss.name)
        return self.pid_of(loss.name) not in (None, loss.pid) or (node is not None and node.state == "dead")

    def is_replaced(self, loss: Loss, nodes: Nodes) -> bool:
        """Another process stands for the node, and does its work."""
        return self.pid_of(loss.name) != loss.pid and self.is_well(loss.name, nodes)

    def is_well(self, name: str, nodes: Nodes) -> bool:
        """It runs and has said so; a service answers."""
        process = self._process_of(name)
        if process is None or condition(process) != "running":
            return False
        if name in self._probes:
            return self._probes[name]()
        node = nodes.get(name)
        return node is not None and (node.state, node.pid) == ("alive", process.pid)

    def ailing(self, nodes: Nodes) -> list[str]:
        """All that are not well, as this machine and the registry see it."""
        return [
            name
            for name, kind in self._kinds.items()
            if not self.is_well(name, nodes)
            or (kind == "service" and not (name in nodes and nodes[name].state == "alive"))
        ]

    def _process_of(self, name: str) -> psutil.Process | None:
        record = read_record(self._fleet.home, name)
        process = record.process() if record else None
        return process if condition(process) != "gone" else None
