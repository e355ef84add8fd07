"""A machine that joins a fleet while clients submit runs, works, and leaves it again."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from host_fleets import CLIENTS, HostFleet
from machines import Machine

from kopitiam.client.http import Transport
from kopitiam.contracts.runs import RunState
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient
from kopitiam_chaos.report import processed_rows
from trickle import rows_of

NEW = "h7"
_NODES = ("spark-worker-3", "gateway-3")
_CLIENTS = 2
_PATIENCE_SECONDS = 300.0
_WINDOW_SECONDS = 20.0


@dataclass
class Growth:
    """Rows processed in a second, before the machine joined, with it, and after it left."""

    rates: list[float] = field(default_factory=list)
    runs: int = 0
    complaints: list[str] = field(default_factory=list)
    tasks: int = 0  # of Spark, that the new machine ended

    def __str__(self) -> str:
        before, grown, after = self.rates
        return (
            f"{before:,.0f} rows/s before, {grown:,.0f} with another machine, {after:,.0f} without it again; "
            f"{self.tasks} tasks ran there; {self.runs} runs verified"
        )


def grow_and_shrink(fleet: HostFleet, sales: Path) -> Growth:
    """Add a machine with a Spark worker and a gateway under load, and take it away again."""
    growth = Growth()
    if NEW not in fleet.lan.machines:
        fleet.lan.add(NEW)
    machine = fleet.machine(NEW)
    with _submitting(fleet, sales, growth):
        fleet.wait(lambda: _rows(fleet) > 0, "processing the uploads", _PATIENCE_SECONDS)
        growth.rates.append(_rate(fleet))
        machine.boot()
        fleet.hosts |= dict.fromkeys(_NODES, NEW)
        fleet.write_config()
        try:
            fleet.up_on(NEW)
            fleet.wait(lambda: _tasks(machine) > 0, "working on the new machine", _PATIENCE_SECONDS)
            growth.rates.append(_rate(fleet))
            growth.tasks = _tasks(machine)
            fleet.kopi(NEW, "cluster", "down")
        finally:
            for name in _NODES:
                del fleet.hosts[name]
            fleet.write_config()
            fleet.power_off(NEW)
        fleet.wait(lambda: not set(_NODES) & fleet.nodes().keys(), "rid of the new machine")
        growth.rates.append(_rate(fleet))
    return growth


@contextlib.contextmanager
def _submitting(fleet: HostFleet, sales: Path, growth: Growth) -> Iterator[None]:
    """Clients on their machine submit and verify runs while the block lasts."""
    folder, urls = DataFolder(sales, rows_of(sales)), fleet.address_urls
    clients = [
        SubmittingClient(
            number,
            folder,
            Transport(urls, patience_seconds=_PATIENCE_SECONDS),
            fleet.registry,
            _PATIENCE_SECONDS,
        )
        for number in range(_CLIENTS)
    ]
    pool = ClientPool(clients)
    fleet.machine(CLIENTS).inside(pool.start).result()
    try:
        yield
        pool.finish(_PATIENCE_SECONDS)
    finally:
        pool.abort()
    growth.runs = len(pool.outcomes)
    growth.complaints = [str(outcome.complaint) for outcome in pool.outcomes if not outcome.is_exact]
    if pool.ended < _CLIENTS:
        growth.complaints.append("a client did not end")


def _rate(fleet: HostFleet) -> float:
    rows, begun = _rows(fleet), time.monotonic()
    time.sleep(_WINDOW_SECONDS)
    return (_rows(fleet) - rows) / (time.monotonic() - begun)


def _rows(fleet: HostFleet) -> int:
    """Processed rows of all runs."""
    registry = fleet.registry
    return sum(
        sum(processed_rows(registry.progress(run.run)).values()) for run in registry.runs_in(*RunState)
    )


def _tasks(machine: Machine) -> int:
    """Tasks that executors on this machine have ended."""
    logs = machine.disk.glob("services/spark-worker-*/work/app-*/*/stderr*")
    return sum(log.read_text(encoding="utf-8", errors="replace").count("Finished task") for log in logs)
