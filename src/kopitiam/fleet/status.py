"""The status of the nodes of a fleet: their registry records, corrected by the processes on this machine."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kopitiam.contracts.messages import NodeKind, NodeRecord, NodeState
from kopitiam.fleet.home import ProcessRecord, read_record
from kopitiam.fleet.lifecycle import Fleet, reported_nodes
from kopitiam.fleet.processes import ProcessState, memory_of, process_state, processes_of
from kopitiam.fleet.services import Service, find_service
from kopitiam.fleet.services.base import without_credentials

_UNKNOWN = "not known: it runs on another machine, and the registry does not answer"
_STARTING_SECONDS = 60.0  # a service that does not answer for longer is dead


@dataclass(frozen=True)
class NodeStatus:
    name: str
    kind: NodeKind
    pid: int | None
    url: str | None
    state: NodeState
    since: float | None
    epoch: int | None
    leader: bool
    memory_bytes: int
    alarm: str | None
    host: str

    def to_dict(self) -> dict[str, Any]:
        shown = ("name", "kind", "host", "pid", "url", "state", "since", "epoch", "leader", "memory_bytes")
        return {name: getattr(self, name) for name in shown}


def fleet_status(fleet: Fleet, names: Iterable[str] | None = None) -> list[NodeStatus]:
    reported = reported_nodes(fleet)
    kinds = fleet.kinds
    return [_status(fleet, name, kinds[name], reported) for name in (kinds if names is None else names)]


def _status(fleet: Fleet, name: str, kind: NodeKind, reported: dict[str, NodeRecord] | None) -> NodeStatus:
    record = read_record(fleet.home, name)
    local_state = process_state(record.process()) if record else "gone"
    reported_node, is_here = (reported or {}).get(name), fleet.settings.is_here(name)
    local = NodeStatus(
        name=name,
        kind=kind,
        pid=record.pid if record and local_state != "gone" else None,
        url=None,
        state=_node_state(record, local_state, reported_node, is_registry_there=reported is not None),
        since=record.started_at if record else None,
        epoch=None,
        leader=False,
        memory_bytes=memory_of(processes_of(fleet.home, name)) if is_here else 0,
        alarm=reported_node.alarm if reported_node else None if is_here or reported is not None else _UNKNOWN,
        host=_host(fleet, name, reported_node),
    )
    if kind == "service":
        service = find_service(name, fleet.settings)
        if is_here:
            return _with_service_state(local, service, record, local_state)
        return _with_remote_state(local, service, reported_node)
    return _with_registry_record(local, reported_node) if reported_node else local


def _host(fleet: Fleet, name: str, reported_node: NodeRecord | None) -> str:
    """The machine that the settings name; else the one that the node has reported."""
    if name in fleet.settings.nodes.hosts:
        return fleet.settings.nodes.hosts[name]
    return (reported_node.host if reported_node else None) or fleet.settings.host


def _with_registry_record(local: NodeStatus, reported_node: NodeRecord) -> NodeStatus:
    is_same_state = reported_node.state == local.state
    is_there = is_same_state and reported_node.state in ("alive", "starting")
    return replace(
        local,
        pid=local.pid or (reported_node.pid if is_there else None),
        url=reported_node.url,
        since=reported_node.since if is_same_state else local.since,
        epoch=reported_node.epoch,
        leader=reported_node.leader and local.state == "alive",
    )


def _with_service_state(
    local: NodeStatus, service: Service, record: ProcessRecord | None, local_state: ProcessState
) -> NodeStatus:
    return replace(
        local,
        url=_shown_url(service),
        state=_service_state(record, local_state, answers=service.probe()),
        memory_bytes=memory_of(service.processes()),
    )


def _with_remote_state(local: NodeStatus, service: Service, reported_node: NodeRecord | None) -> NodeStatus:
    """The state of a service of another machine: a probe decides, then the registry."""
    if service.probe():
        return replace(local, url=_shown_url(service), state="alive", alarm=None)
    is_outdated = reported_node is not None and reported_node.state == "alive"
    return replace(local, url=_shown_url(service), state="dead" if is_outdated else local.state)


def _shown_url(service: Service) -> str | None:
    url = service.url()
    return without_credentials(url) if url else None


def _service_state(record: ProcessRecord | None, local_state: ProcessState, answers: bool) -> NodeState:
    if answers:
        return "alive"
    if record is None:
        return "stopped"
    is_recent = time.time() - record.started_at < _STARTING_SECONDS
    return "starting" if local_state == "running" and is_recent else "dead"


def _node_state(
    record: ProcessRecord | None,
    local_state: ProcessState,
    reported_node: NodeRecord | None,
    is_registry_there: bool,
) -> NodeState:
    if record is None:  # on another machine, or not running
        return reported_node.state if reported_node else "stopped"
    if local_state != "running":
        return "dead"
    if not is_registry_there:
        return "alive"
    return reported_node.state if reported_node and record.is_process_of(reported_node) else "starting"
