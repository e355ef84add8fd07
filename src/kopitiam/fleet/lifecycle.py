"""The nodes of a fleet, whatever they are: started and ended alike."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kopitiam.bus import open_bus
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, NodeKind, NodeRecord, Stopped
from kopitiam.fleet.home import FleetHome, read_record, recorded_names
from kopitiam.fleet.processes import Launched, Program, launch, stop
from kopitiam.fleet.services import find_service, service_settings
from kopitiam.registry.engine import SQLITE_FILE
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.system.files import keep_private
from kopitiam.system.settings import DEFAULT_FILE, load_settings

FIRST_MOMENTS = 4.0  # what is wrong with a setting or a port shows by then


@dataclass(frozen=True)
class Fleet:
    """The nodes of one settings file on this machine."""

    settings: Settings
    config: Path | None = None

    @property
    def home(self) -> FleetHome:
        return FleetHome(self.settings.home)

    @property
    def kinds(self) -> dict[str, NodeKind]:
        """By name; also those that run although the settings do not name them any more."""
        known = self.settings.nodes.kinds
        records = (read_record(self.home, name) for name in recorded_names(self.home) if name not in known)
        return {**known, **{record.name: record.kind for record in records if record}}


def open_fleet(config: Path | None) -> Fleet:
    """Nodes are told the file by its full name, since they may be started again from anywhere."""
    if config is None and DEFAULT_FILE.is_file():
        config = DEFAULT_FILE
    return Fleet(load_settings(config), config.absolute() if config else None)


def start_node(fleet: Fleet, name: str) -> bool:
    """Returns when it has lived through its first moments, a service when it answers. False if it ran."""
    kind = require_kind(fleet, name)
    keep_private(fleet.settings.home, fleet.settings.umask)
    fleet.home.make()
    if kind == "service":
        return find_service(name, fleet.settings).start()
    launched = launch_node(fleet, name)
    launched.settle(FIRST_MOMENTS)
    return launched.child is not None


def launch_node(fleet: Fleet, name: str) -> Launched:
    return launch(fleet.home, node_program(fleet.settings, fleet.config, name))


def end_node(fleet: Fleet, name: str) -> bool:
    """False if there was nothing to end."""
    if fleet.kinds.get(name) == "service":
        return find_service(name, fleet.settings).stop()
    return stop(fleet.home, name)


def added_pipelines(fleet: Fleet) -> list[str]:
    """Pipelines that come to others. One that was killed or frozen has cores, and takes them over."""
    pipelines = fleet.settings.nodes.pipelines
    joining = [name for name in pipelines if read_record(fleet.home, name) is None]
    return joining if len(joining) < len(pipelines) else []


def require_kind(fleet: Fleet, name: str) -> NodeKind:
    if name not in fleet.kinds:
        raise ConfigError(f"{name}: there is no such node; there are {', '.join(fleet.kinds)}")
    return fleet.kinds[name]


def node_program(settings: Settings, config: Path | None, name: str) -> Program:
    kind = settings.nodes.kinds[name]
    command = [sys.executable, "-m", "kopitiam", kind, "--name", name]
    if config is not None:
        command += ["--config", str(config)]
    if kind == "pipeline":
        command += ["--shards", ",".join(map(str, settings.nodes.pipelines[name]))]
    return Program(name, kind, lambda: tuple(command))


def stop_node(fleet: Fleet, name: str) -> bool:
    """False if there was nothing to stop."""
    if require_kind(fleet, name) == "service":
        report_stopped(fleet, [name])  # afterwards there may be no registry to tell
        return end_node(fleet, name)
    was_alive = end_node(fleet, name)
    _tell_monitors(fleet, report_stopped(fleet, [name]))
    return was_alive


def reported_nodes(fleet: Fleet) -> dict[str, NodeRecord] | None:
    """What the registry knows; None if it cannot be reached."""
    with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
        return {node.name: node for node in registry.nodes()}
    return None


def report_stopped(fleet: Fleet, names: Sequence[str]) -> list[NodeRecord]:
    """For those that were killed, and could not say so themselves: they are given back."""
    silent: list[NodeRecord] = []
    if not names:
        return silent
    with contextlib.suppress(ServiceError), contextlib.closing(_registry(fleet)) as registry:
        for node in registry.nodes():
            if node.name in names and node.state != "stopped":
                stopped = replace(node, state="stopped", pid=None, since=registry.now(), leader=False)
                registry.report_node(stopped)
                silent.append(node)
    return silent


def _tell_monitors(fleet: Fleet, silent: Sequence[NodeRecord]) -> None:
    """Or they would revive what had to be killed."""
    if not silent:
        return
    with (
        contextlib.suppress(ServiceError),
        contextlib.closing(open_bus(service_settings(fleet.settings).bus.url)) as bus,
    ):
        for node in silent:
            bus.publish(HEARTBEAT_TOPIC, Stopped(node=node.name, epoch=node.epoch))


def _registry(fleet: Fleet) -> Registry:
    settings = service_settings(fleet.settings)
    if settings.registry.url == "sqlite" and not (settings.home / SQLITE_FILE).exists():
        raise ServiceError("registry: there is none yet")
    return open_registry(settings.registry.url, settings.home)
