"""Starts and stops single nodes of a fleet, and reports stopped ones. Whole fleets are in `cluster`."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kopitiam.bus import open_bus
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, KopitiamError, ServiceError
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, NodeKind, NodeRecord, NodeState, Stopped
from kopitiam.fleet.home import FleetHome, read_record, recorded_names
from kopitiam.fleet.processes import Launched, Program, launch, stop
from kopitiam.fleet.services import find_service, service_settings
from kopitiam.registry.engine import SQLITE_FILE
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.system.files import keep_private
from kopitiam.system.settings import DEFAULT_FILE, load_settings

START_SECONDS = 20.0  # wrong settings and occupied ports fail within this time, on a busy machine too


@dataclass(frozen=True)
class Fleet:
    """The nodes of one settings file."""

    settings: Settings
    config: Path | None = None

    @property
    def home(self) -> FleetHome:
        return FleetHome.of(self.settings)

    @property
    def kinds(self) -> dict[str, NodeKind]:
        """The kind of each node by name, including running nodes that were removed from the settings."""
        known = self.settings.nodes.kinds
        records = (read_record(self.home, name) for name in recorded_names(self.home) if name not in known)
        return {**known, **{record.name: record.kind for record in records if record}}

    @property
    def kinds_here(self) -> dict[str, NodeKind]:
        """As `kinds`, for the nodes of this machine."""
        return {name: kind for name, kind in self.kinds.items() if self.settings.is_here(name)}

    @contextlib.contextmanager
    def naming_machine(self) -> Iterator[None]:
        """Put the name of this machine before errors, if the fleet has several."""
        try:
            yield
        except KopitiamError as error:
            if not self.settings.spans_machines:
                raise
            raise type(error)(f"{self.settings.host}: {error}") from error


def open_fleet(config: Path | None) -> Fleet:
    """Nodes get the absolute path of the file, since they may be restarted from any folder."""
    if config is None and DEFAULT_FILE.is_file():
        config = DEFAULT_FILE
    return Fleet(load_settings(config), config.absolute() if config else None)


def start_node(fleet: Fleet, name: str) -> bool:
    """Start a node unless it is running; returns whether it was started.

    Waits until a service answers, or a node has joined the fleet. Raises `ConfigError` or `ServiceError` if
    it ends instead.
    """
    kind = require_kind_here(fleet, name)
    keep_private(fleet.settings.home, fleet.settings.umask)
    fleet.home.make()
    if kind == "service":
        is_new = find_service(name, fleet.settings).start()
        with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
            report_services(fleet, registry, [name] if is_new else [], "starting")
        return is_new
    launched = launch_node(fleet, name)
    launched.raise_if_ends_within(START_SECONDS, lambda: fleet.home.has_joined(name, launched.pid))
    return launched.child is not None


def launch_node(fleet: Fleet, name: str) -> Launched:
    return launch(fleet.home, node_program(fleet.settings, fleet.config, name))


def end_node(fleet: Fleet, name: str) -> bool:
    """Stop the processes without reporting it. Returns whether it was running."""
    if fleet.kinds.get(name) == "service":
        return find_service(name, fleet.settings).stop()
    return stop(fleet.home, name)


def added_pipelines(fleet: Fleet) -> list[str]:
    """Pipelines started beside running ones, which need free cores. A killed or frozen one takes over its
    own."""
    pipelines = [name for name in fleet.settings.nodes.pipelines if fleet.settings.is_here(name)]
    added = [name for name in pipelines if read_record(fleet.home, name) is None]
    return added if len(added) < len(pipelines) else []


def require_kind(fleet: Fleet, name: str) -> NodeKind:
    """Raises `ConfigError` if the fleet has no such node."""
    if name not in fleet.kinds:
        raise ConfigError(f"{name}: no such node; there are {', '.join(fleet.kinds)}")
    return fleet.kinds[name]


def require_kind_here(fleet: Fleet, name: str) -> NodeKind:
    """Raises `ConfigError` if the node runs on another machine."""
    kind, settings = require_kind(fleet, name), fleet.settings
    if not settings.is_here(name):
        raise ConfigError(f"{name} runs on {settings.host_of(name)}, and this machine is {settings.host}")
    return kind


def node_program(settings: Settings, config: Path | None, name: str) -> Program:
    kind = settings.nodes.kinds[name]
    command = [sys.executable, "-m", "kopitiam", kind, "--name", name]
    if config is not None:
        command += ["--config", str(config)]
    if kind == "pipeline":
        command += ["--shards", ",".join(map(str, settings.nodes.pipelines[name]))]
    return Program(name, kind, lambda: tuple(command))


def stop_node(fleet: Fleet, name: str) -> bool:
    """Stop a node and report it, so that it is not revived. Returns whether it was running."""
    if require_kind_here(fleet, name) == "service":
        report_stopped_services(fleet, [name])
        return end_node(fleet, name)
    was_alive = end_node(fleet, name)
    _publish_stopped(fleet, report_stopped(fleet, [name]))
    return was_alive


def reported_nodes(fleet: Fleet) -> dict[str, NodeRecord] | None:
    """The node records in the registry; None if it is unavailable."""
    with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
        return {node.name: node for node in registry.nodes()}
    return None


def report_stopped(fleet: Fleet, names: Sequence[str]) -> list[NodeRecord]:
    """Mark killed nodes as stopped, since they could not; returns their earlier records."""
    killed: list[NodeRecord] = []
    if not names:
        return killed
    with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
        for node in registry.nodes():
            if node.name in names and node.state != "stopped":
                stopped = replace(node, state="stopped", pid=None, since=registry.now(), leader=False)
                registry.report_node(stopped)
                killed.append(node)
    return killed


def report_stopped_services(fleet: Fleet, names: Sequence[str]) -> None:
    """Called before services are stopped, since one of them may be the registry. Returns when the monitors of
    other machines have read it: they would revive the services."""
    monitors = fleet.settings.nodes.monitors if names else ()
    with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
        report_services(fleet, registry, names, "stopped")
        if any(not fleet.settings.is_here(name) for name in monitors):
            time.sleep(2 * fleet.settings.monitor.heartbeat_seconds)


def report_services(fleet: Fleet, registry: Registry, names: Sequence[str], state: NodeState) -> None:
    """Report services of this machine under their next epochs, so that a leader with an earlier view of them
    does not overwrite it."""
    epochs = {node.name: node.epoch for node in registry.nodes()}
    for name in names:
        epoch, host = epochs.get(name, 0) + 1, fleet.settings.host
        registry.report_node(NodeRecord(name, "service", None, None, state, registry.now(), epoch, host=host))


def _publish_stopped(fleet: Fleet, killed: Sequence[NodeRecord]) -> None:
    """Otherwise they would revive the killed nodes."""
    if not killed:
        return
    url = service_settings(fleet.settings).bus.url
    with (
        contextlib.suppress(ServiceError),
        contextlib.closing(_registry(fleet)) as registry,
        contextlib.closing(open_bus(url, registry.identity().id)) as bus,
    ):
        for node in killed:
            bus.publish(HEARTBEAT_TOPIC, Stopped(node=node.name, epoch=node.epoch))


def _registry(fleet: Fleet) -> Registry:
    settings = service_settings(fleet.settings)
    if settings.registry.url == "sqlite" and not (settings.home / SQLITE_FILE).exists():
        raise ServiceError("registry: not created yet")
    return open_registry(settings.registry.url, settings.home)
