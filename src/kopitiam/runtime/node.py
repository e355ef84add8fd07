"""The nodes of a fleet, each a process of its own: what it is made of, and when it ends."""

import contextlib
import functools
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kopitiam.bus.open import open_bus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, KopitiamError, ServiceError, UserError
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.readiness import ready_mark
from kopitiam.fleet.records import read_record
from kopitiam.fleet.roster import Roster
from kopitiam.fleet.services import find_service
from kopitiam.fleet.services.addresses import without_credentials
from kopitiam.landing.recognition import Premises
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.registry.registry import open_registry
from kopitiam.runtime.home import shared
from kopitiam.storage.open import open_storage
from kopitiam.supervision.membership import Membership, Place
from kopitiam.supervision.services import ServiceWatch, Whereabouts
from kopitiam.system.health import LEAST_BOUND_SECONDS, Health, Pulse
from kopitiam.system.logs import KeptLogs, small_logs
from kopitiam.system.threads import fail, working

if TYPE_CHECKING:
    from kopitiam.spark.session import SparkEngine


_log = logging.getLogger(__name__)
_LEAVING_SECONDS = 9.0  # a node is gone within ten


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
        small_logs(settings.home, settings.log_bytes),
        contextlib.closing(open_registry(settings.registry.url, settings.home, is_checked=True)) as registry,
        contextlib.closing(open_bus(settings.bus.url)) as bus,
        _port(settings, kind) as port,
    ):
        storage = None if kind == "monitor" else open_storage(settings)  # monitors need not see it
        Premises(settings.home, storage, settings.storage.url).recognize(registry)
        place = Place(name, kind, registry, bus, settings.monitor)
        membership = Membership(place, functools.partial(_lose, trouble))
        try:
            yield Member(settings, registry, bus, membership, trouble, port)
        except Exception:
            membership.fall()
            raise
        except BaseException:  # a signal: it leaves on purpose
            membership.leave()
            raise
        membership.leave()


def _lose(trouble: "Future[None]", error: KopitiamError) -> None:
    """The node leaves. What stands still may keep it from that: then it ends without a goodbye, and whatever
    is left of it ends when it is started again."""
    fail(trouble, error)
    leaving = threading.Timer(_LEAVING_SECONDS, os._exit, [error.exit_code])
    leaving.daemon = True
    leaving.start()


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
    is_over = functools.partial(fail, node.trouble, ServiceError("the gateway's server has ended"))
    bound_seconds = max(LEAST_BOUND_SECONDS, node.settings.monitor.timeout_seconds)
    pulses: list[Pulse] = []

    def beating(ask: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        pulses.append(Pulse(ask, bound_seconds))
        return pulses[0].beating()

    def vouch() -> str | None:
        return f"its server has answered nothing for {bound_seconds:.0f} s" if pulses[0].is_silent else None

    try:
        tidying = functools.partial(keep_tidy, gateway, stopping)
        with (
            working(tidying, stop=[stopping.set], trouble=node.trouble),
            serving(gateway, node.port, on_ended=is_over, pulse=beating) as url,
        ):
            node.membership.start(url, vouch)
            node.trouble.result()
    finally:
        close_gateway(gateway)


def run_pipeline(node: Member, shards: tuple[int, ...], engine: "SparkEngine", scratch: Path) -> None:
    from kopitiam.pipeline.worker import Worker  # noqa: PLC0415
    from kopitiam.runtime.pipeline import Workplace, pipeline_node  # noqa: PLC0415
    from kopitiam.spark.executors import LOST_SECONDS, is_cluster, patience_with, watch_over  # noqa: PLC0415

    fence, session, health = node.membership.fence, engine.session, Health()
    workplace = Workplace(session, scratch, _checkpoint(node.settings.home, shards, fence), health)
    made = pipeline_node(node.settings, shards, node.registry, node.bus, fence=fence, workplace=workplace)
    worker = Worker(made)

    def vouch() -> str | None:
        """A process that does not answer is killed at once: or those who wait for it could not leave."""
        if reason := worker.vouch():
            worker.blame(reason)
            engine.kill()
        return reason

    with working(worker.work, stop=[worker.stop], trouble=node.trouble):
        node.membership.start(vouch=vouch, trouble=lambda: health.reason)
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
        node.membership.start(vouch=monitor.vouch)
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
    """A folder of this process alone; those of lives that are gone are removed, but for what Spark said."""
    scratch, logs = ready_mark(home, name, os.getpid()).parent, KeptLogs(home / "logs", name)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    for left in scratch.parent.iterdir():
        if not (left.name.isdigit() and psutil.pid_exists(int(left.name))):
            if kept := logs.keep(left):
                _log.warning("a life before this one ended badly; what Spark said is kept in %s", kept)
            shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir(exist_ok=True)
    try:
        yield scratch
    except UserError:  # refused at the start: no trouble of Spark's
        raise
    except Exception:
        if kept := logs.keep(scratch):
            _log.error("what Spark said is kept in %s", kept)
        raise
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


def _checkpoint(home: Path, shards: tuple[int, ...], fence: Fence) -> Path:
    """One for each life: a frozen one may still write to its own. The registry knows where to go on."""
    life = f"{fence.name}.{fence.epoch}-{fence.holder[:8]}"  # no name has a dot in it
    mine = Home(home).checkpoint(life, shards)
    for old in mine.parent.glob(f"{fence.name}.*"):
        shutil.rmtree(old, ignore_errors=True)
    return mine
