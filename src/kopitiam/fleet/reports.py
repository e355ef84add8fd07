"""What the registry knows of the nodes, and is told of those that are stopped on purpose."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from kopitiam.bus.open import open_bus
from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Stopped
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.fleet.nodes import Fleet, end_node, require_kind
from kopitiam.fleet.services import service_settings
from kopitiam.registry.engine import SQLITE_FILE
from kopitiam.registry.registry import Registry, open_registry


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
