"""How the nodes of a fleet are: what the registry says of them, corrected by what this machine sees."""

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

_STARTING_SECONDS = 60.0  # a service that is silent for longer is dead


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

    def to_dict(self) -> dict[str, Any]:
        shown = ("name", "kind", "pid", "url", "state", "since", "epoch", "leader", "memory_bytes")
        return {name: getattr(self, name) for name in shown}


def fleet_status(fleet: Fleet, names: Iterable[str] | None = None) -> list[NodeStatus]:
    reported = reported_nodes(fleet)
    kinds = fleet.kinds
    return [_status(fleet, name, kinds[name], reported) for name in (kinds if names is None else names)]


def _status(fleet: Fleet, name: str, kind: NodeKind, reported: dict[str, NodeRecord] | None) -> NodeStatus:
    record = read_record(fleet.home, name)
    life = process_state(record.process()) if record else "gone"
    told = (reported or {}).get(name)
    seen = NodeStatus(
        name=name,
        kind=kind,
        pid=record.pid if record and life != "gone" else None,
        url=None,
        state=_node_state(record, life, told, is_registry_there=reported is not None),
        since=record.started_at if record else None,
        epoch=None,
        leader=False,
        memory_bytes=memory_of(processes_of(fleet.home, name)),
        alarm=told.alarm if told else None,
    )
    if kind == "service":
        return _of_service(seen, find_service(name, fleet.settings), record, life)
    return _as_told(seen, told) if told else seen


def _as_told(seen: NodeStatus, told: NodeRecord) -> NodeStatus:
    is_as_seen = told.state == seen.state
    is_there = is_as_seen and told.state in ("alive", "starting")
    return replace(
        seen,
        pid=seen.pid or (told.pid if is_there else None),
        url=told.url,
        since=told.since if is_as_seen else seen.since,
        epoch=told.epoch,
        leader=told.leader and seen.state == "alive",
    )


def _of_service(
    seen: NodeStatus, service: Service, record: ProcessRecord | None, life: ProcessState
) -> NodeStatus:
    url = service.url()
    return replace(
        seen,
        url=without_credentials(url) if url else None,
        state=_service_state(record, life, answers=service.probe()),
        memory_bytes=memory_of(service.processes()),
    )


def _service_state(record: ProcessRecord | None, life: ProcessState, answers: bool) -> NodeState:
    if answers:
        return "alive"
    if record is None:
        return "stopped"
    is_young = time.time() - record.started_at < _STARTING_SECONDS
    return "starting" if life == "running" and is_young else "dead"


def _node_state(
    record: ProcessRecord | None, life: ProcessState, told: NodeRecord | None, is_registry_there: bool
) -> NodeState:
    if record is None:  # not ours, or not running
        return told.state if told else "stopped"
    if life != "running":
        return "dead"
    if not is_registry_there:
        return "alive"
    is_this_life = told is not None and told.pid == record.pid
    return told.state if told and is_this_life else "starting"
