"""Membership of one process in a fleet: its registry, bus, lease and heartbeat. Gateways, pipelines and
monitors are composed in modules of their own.
"""

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from kopitiam.bus import open_bus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, KopitiamError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome
from kopitiam.landing.recognition import Premises
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.runtime.home import shared_home
from kopitiam.storage.open import open_storage
from kopitiam.supervision.membership import Membership, NodeContext
from kopitiam.system.logs import rotating_logs
from kopitiam.system.threads import fail

_EXIT_SECONDS = 9.0  # a node that lost its lease exits within ten seconds


@dataclass(frozen=True)
class Member:
    """A process that holds the lease of a node."""

    settings: Settings
    registry: Registry
    bus: BusPort
    membership: Membership
    failure: "Future[None]"  # fails with the reason when this node cannot work any more
    port: socket.socket | None  # of a gateway


@contextlib.contextmanager
def member(
    settings: Settings, name: str, kind: NodeKind, listen: Callable[[], socket.socket] | None = None
) -> Iterator[Member]:
    """Takes over the lease of the node: an earlier process of the same name finds its epoch stale.

    `listen` binds a gateway's port before that: one that cannot serve must not replace one that does.
    Raises ConfigError if the settings have no such node, or a bus that only one process can use.
    """
    if settings.nodes.kinds.get(name) != kind:
        known = ", ".join(node for node, node_kind in settings.nodes.kinds.items() if node_kind == kind)
        raise ConfigError(f"--name {name}: not a {kind} of [nodes]; there are {known or 'none'}")
    if settings.bus.url == "memory":
        raise ConfigError("bus.url: a fleet needs amqp://…; memory is for one process only")
    failure = Future[None]()
    with (
        shared_home(settings.home),
        rotating_logs(settings.home, settings.log_bytes),
        contextlib.closing(open_registry(settings.registry.url, settings.home, is_checked=True)) as registry,
        contextlib.closing(open_bus(settings.bus.url, registry.identity().id)) as bus,
        contextlib.closing(listen()) if listen else contextlib.nullcontext() as port,
    ):
        storage = None if kind == "monitor" else open_storage(settings)  # monitors do not use storage
        Premises(settings.home, storage, settings.storage.url).recognize(registry)
        place = NodeContext(name, kind, registry, bus, settings.monitor, settings.host)
        membership = Membership(place, functools.partial(_on_lost, failure))
        _mark_joined(FleetHome.of(settings), name)
        try:
            yield Member(settings, registry, bus, membership, failure, port)
        except Exception:
            membership.stop_silently()
            raise
        except BaseException:  # a signal: the node stops on purpose
            membership.leave()
            raise
        membership.leave()


def _mark_joined(home: FleetHome, name: str) -> None:
    """For the command that started this process; there is none if systemd or a container did."""
    with contextlib.suppress(FileNotFoundError):
        home.joined_mark(name).write_text(str(os.getpid()), encoding="utf-8")


def _on_lost(failure: "Future[None]", error: KopitiamError) -> None:
    """Fails the node. If a blocked thread keeps the process alive, it exits without cleaning up, which the
    next start of the node does."""
    fail(failure, error)
    exiting = threading.Timer(_EXIT_SECONDS, os._exit, [error.exit_code])
    exiting.daemon = True
    exiting.start()
