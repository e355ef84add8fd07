"""The nodes of a fleet, each a process of its own: what it is made of, and when it ends."""

import contextlib
import functools
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kopitiam.bus.open import open_bus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.readiness import ready_mark
from kopitiam.fleet.records import read_record
from kopitiam.fleet.roster import Roster
from kopitiam.fleet.services import find_service
from kopitiam.fleet.services.addresses import without_credentials
from kopitiam.landing.layout import Home
from kopitiam.landing.ownership import shared
from kopitiam.registry.port import RegistryPort
from kopitiam.registry.registry import open_registry
from kopitiam.supervision.membership import Membership, Place
from kopitiam.supervision.services import ServiceWatch, Whereabouts
from kopitiam.working import fail, working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Member:
    """A process that has its place in the fleet."""

    settings: Settings
    registry: RegistryPort
    bus: BusPort
    membership: Membership
    trouble: "Future[None]"  # done when this node can work no more, with the reason
    port: socket.socket | None  # of a gateway


@contextlib.contextmanager
def member(settings: Settings, name: str, kind: NodeKind) -> Iterator[Member]:
    """Takes the place; an earlier life of the same name finds its epoch stale."""
    if settings.nodes.kinds.get(name) != kind:
        known = ", ".join(node for node, what in settings.nodes.kinds.items() if what == kind)
        raise ConfigError(f"--name {name}: not a {kind} of [nodes]; there are {known or 'none'}")
    if settings.bus.url == "memory":
        raise ConfigError("bus.url: a fleet wants amqp://…; memory is for one process only")
    trouble = Future[None]()
    with (
        shared(settings.home),
        contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry,
        contextlib.closing(open_bus(settings.bus.url)) as bus,
        _port(settings, kind) as port,
    ):
        place = Place(name, kind, registry, bus, settings.monitor)
        membership = Membership(place, functools.partial(fail, trouble))
        try:
            yield Member(settings, registry, bus, membership, trouble, port)
        except Exception:
            membership.fall()
            raise
        except BaseException:  # a signal: it leaves on purpose
            membership.leave()
            raise
        membership.leave()


@contextlib.contextmanager
def _port(settings: Settings, kind: NodeKind) -> Iterator[socket.socket | None]:
    """Had before the place is taken: a gateway that cannot serve must not send one away that does."""
    if kind != "gateway":
        yield None
        return
    from kopitiam.gateway.server import listen  # noqa: PLC0415

    with contextlib.closing(listen(settings.gateway)) as bound:
        yield bound


def run_gateway(node: Member) -> None:
    """Until there is trouble, which is raised."""
    from kopitiam.gateway.app import close_gateway, open_gateway  # noqa: PLC0415 - each kind loads its own
    from kopitiam.gateway.janitor import keep_tidy  # noqa: PLC0415
    from kopitiam.gateway.server import serving  # noqa: PLC0415

    gateway = open_gateway(node.membership.fence, node.settings, node.registry, node.bus)
    stopping = threading.Event()
    try:
        tidying = functools.partial(keep_tidy, gateway, stopping)
        with (
            working(tidying, stop=[stopping.set], trouble=node.trouble),
            serving(gateway, node.port) as url,
        ):
            node.membership.start(url)
            node.trouble.result()
    finally:
        close_gateway(gateway)


def run_pipeline(
    node: Member, shards: tuple[int, ...], session: "Future[SparkSession]", scratch: Path
) -> None:
    from kopitiam.composition import Workplace, pipeline_node  # noqa: PLC0415
    from kopitiam.pipeline.executors import LOST_SECONDS, is_cluster, patience_with, watch_over  # noqa: PLC0415
    from kopitiam.pipeline.worker import Worker  # noqa: PLC0415

    fence = node.membership.fence
    workplace = Workplace(session, scratch, _checkpoint(node.settings.home, shards, fence.name, fence.epoch))
    made = pipeline_node(node.settings, shards, node.registry, node.bus, fence=fence, workplace=workplace)
    worker = Worker(made)
    with working(worker.work, stop=[worker.stop], trouble=node.trouble):
        node.membership.start()
        spark = session.result()
        wait([worker.ready, node.trouble], return_when=FIRST_COMPLETED)
        if worker.ready.done():
            ready_mark(node.settings.home, fence.name, os.getpid()).touch()
        on = node.settings.spark
        if is_cluster(on.master):
            watch_over(spark, node.trouble, max(LOST_SECONDS, patience_with(on.master, on.patience_seconds)))
        node.trouble.result()


def run_monitor(node: Member, config: Path | None) -> None:
    from kopitiam.supervision.leadership import Watch  # noqa: PLC0415
    from kopitiam.supervision.monitor import Monitor  # noqa: PLC0415
    from kopitiam.supervision.reviver import Reviver  # noqa: PLC0415

    place, nodes, pace = node.membership.fence, node.settings.nodes, node.settings.monitor
    roster = Roster(config, node.settings)
    reviver = Reviver(pace.revive, config, lambda revived: monitor.on_revived(revived))  # noqa: PLW0108 - made below
    below = len(nodes.monitors) - nodes.monitors.index(place.name) - 1
    services = ServiceWatch(
        roster.probes,
        functools.partial(whereabouts, node.settings),
        reviver.revive,
        every_seconds=pace.heartbeat_seconds,
        patience_seconds=below * 3 * pace.heartbeat_seconds,
        revive_limit=pace.revive_limit,
    )
    monitor = Monitor(Watch(place, roster.nodes, pace, node.registry, node.bus, reviver.revive, services))
    with working(monitor.run, stop=[monitor.stop, reviver.close], trouble=node.trouble):
        node.membership.start()
        node.trouble.result()


def whereabouts(settings: Settings, name: str) -> Whereabouts | None:
    """As `kopi cluster status` shows it; None for one that was stopped: it has no record, and no answer."""
    service, record = find_service(name, settings), read_record(FleetHome(settings.home), name)
    if record is None and not service.probe():
        return None
    url = service.url()
    return Whereabouts(record.pid if record else None, without_credentials(url) if url else None)


@contextlib.contextmanager
def own_scratch(home: Path, name: str) -> Iterator[Path]:
    """A folder of this process alone; those of lives that are gone are removed."""
    scratch = ready_mark(home, name, os.getpid()).parent
    scratch.parent.mkdir(parents=True, exist_ok=True)
    for left in scratch.parent.iterdir():
        if not (left.name.isdigit() and psutil.pid_exists(int(left.name))):
            shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir(exist_ok=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def take_cores_over(scratch: Path) -> None:
    """An earlier life of this node that stands still keeps the cores that a cluster gave it: its Spark ends
    here. It finds out by itself that it was replaced, should it ever wake up."""
    for other in scratch.parent.iterdir():
        if other == scratch:
            continue
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(int(other.name)).children(recursive=True):
                if any(str(other) in word for word in child.cmdline()):
                    child.kill()


def _checkpoint(home: Path, shards: tuple[int, ...], name: str, epoch: int) -> Path:
    """One for each life: a frozen one may still write to its own. The registry knows where to go on."""
    mine = Home(home).checkpoint(f"{name}.{epoch}", shards)  # no name has a dot in it
    for old in mine.parent.glob(f"{name}.*"):
        shutil.rmtree(old, ignore_errors=True)
    return mine
