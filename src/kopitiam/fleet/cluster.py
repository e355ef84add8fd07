"""Brings a whole fleet up, in order of dependency, waits until it is ready, and takes it down in reverse."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from kopitiam.contracts.errors import KopitiamError, ServiceError, Unavailable
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.fleet.home import FleetHome, read_record, ready_mark
from kopitiam.fleet.lifecycle import (
    Fleet,
    added_pipelines,
    end_node,
    launch_node,
    report_stopped,
    start_node,
)
from kopitiam.fleet.preflight import check_free_cores, check_settings, check_shards_of_open_runs
from kopitiam.fleet.processes import Launched, is_running
from kopitiam.fleet.services import in_start_order, service_settings, services_of
from kopitiam.fleet.services.spark import SPARK_MASTER
from kopitiam.fleet.status import NodeStatus, fleet_status
from kopitiam.landing.recognition import Premises
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.storage.open import open_storage
from kopitiam.system.files import keep_private
from kopitiam.system.logs import last_lines

_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
OnStep = Callable[[str, int, int], None]  # waiting for, steps done, steps in all
_STOPPED_TOGETHER: tuple[NodeKind, ...] = ("monitor", "gateway", "pipeline")


def await_ready(
    home: FleetHome,
    registry: Registry,
    launched: Sequence[Launched],
    deadline: float,
    on_wait: Callable[[list[str]], None],
) -> None:
    """Wait until all nodes can work: alive by their records, gateways accept runs, pipelines have Spark.

    `on_wait` is called with the names still missing. Raises `ServiceError` on timeout, and the error of the
    first node that ends.
    """
    # The certificate is for clients, which may use another name for the gateway.
    with httpx.Client(verify=False, timeout=_ANSWER_SECONDS) as http:  # noqa: S501
        while True:
            for node in launched:
                node.raise_if_ended()
            missing = _missing(home, registry, http, [node.name for node in launched])
            on_wait(missing)
            if not missing:
                return
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"not ready in time: {', '.join(missing)}{_last_log_line(launched, missing[0])}"
                )
            time.sleep(_POLL_SECONDS)


def _last_log_line(launched: Sequence[Launched], name: str) -> str:
    logs = [f":{last_lines(node.log, node.log_start)}" for node in launched if node.name == name]
    return "".join(logs)


def _missing(home: FleetHome, registry: Registry, http: httpx.Client, names: list[str]) -> list[str]:
    try:
        reported = {node.name: node for node in registry.nodes()}
    except Unavailable:
        return names
    nodes = [reported[name] for name in names if name in reported]
    ready = [node.name for node in nodes if _is_ready(home, http, node)]
    missing = [name for name in names if name not in ready]
    monitors = [node for node in nodes if node.kind == "monitor"]
    if not missing and monitors and not any(node.leader for node in monitors):
        return ["a monitor that leads"]
    return missing


def _is_ready(home: FleetHome, http: httpx.Client, node: NodeRecord) -> bool:
    """Compares pids, since the record may be of an earlier process."""
    record = read_record(home, node.name)
    if record is None or node.pid != record.pid or node.state != "alive":
        return False
    if node.kind == "pipeline":
        return ready_mark(home.path, node.name, record.pid).exists()
    return node.kind != "gateway" or (node.url is not None and _takes_runs(http, node.url))


def _takes_runs(http: httpx.Client, url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get(f"{url}/readyz").status_code == httpx.codes.OK
    return False


def _ignore(_what: str, _done: int, _total: int) -> None:
    pass


def up(
    fleet: Fleet, patience_seconds: float = PATIENCE_SECONDS, on_step: OnStep = _ignore
) -> list[NodeStatus]:
    """Start all nodes and wait until they are ready. If one fails, the nodes started here are stopped
    again."""
    check_settings(fleet.settings)
    if fleet.settings.nodes.gateways:
        fleet.settings.gateway.require_guarded()
    keep_private(fleet.settings.home, fleet.settings.umask)
    started: list[str] = []
    try:
        _bring_up(fleet, started, time.monotonic() + patience_seconds, on_step)
    except BaseException:
        with contextlib.suppress(KopitiamError):  # report the first error, not this one
            _stop(fleet, started)
        raise
    return fleet_status(fleet)


def down(fleet: Fleet, on_step: OnStep = _ignore) -> list[str]:
    """Stop all nodes; returns the names of those that were running. Also works on an incomplete fleet."""
    return _stop(fleet, fleet.kinds, on_step)


def _bring_up(fleet: Fleet, started: list[str], deadline: float, on_step: OnStep) -> None:
    services = [service.name for service in services_of(fleet.settings)]
    nodes = [*fleet.settings.nodes.monitors, *fleet.settings.nodes.pipelines, *fleet.settings.nodes.gateways]
    total = len(services) + len(nodes)
    is_new = {name: not is_running(fleet.home, name) for name in (*services, *nodes)}
    for done, name in enumerate(services):
        on_step(name, done, total)
        started += [name] if is_new[name] else []
        start_node(fleet, name)
    settings = service_settings(fleet.settings)
    with contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry:
        Premises(settings.home, open_storage(settings), settings.storage.url).require(registry)
        check_shards_of_open_runs(settings, registry)
        if SPARK_MASTER in services:
            check_free_cores(added_pipelines(fleet), settings)
        launched = []
        for name in nodes:
            started += [name] if is_new[name] else []
            launched.append(launch_node(fleet, name))
        await_ready(
            fleet.home,
            registry,
            launched,
            deadline,
            lambda late: on_step(", ".join(late), total - len(late), total),
        )


def _stop(fleet: Fleet, names: Iterable[str], on_step: OnStep = _ignore) -> list[str]:
    """Monitors first, or they would revive the others; services last, since all depend on them. A failure
    does not keep the others from being stopped; the first one is raised at the end."""
    kinds = {name: fleet.kinds[name] for name in names}
    services = in_start_order(name for name, kind in kinds.items() if kind == "service")
    outcomes: dict[str, bool | KopitiamError] = {}
    for kind in _STOPPED_TOGETHER:
        group = [name for name in kinds if kinds[name] == kind]
        on_step(", ".join(group), len(outcomes), len(kinds))
        outcomes |= _end_together(fleet, group)
        report_stopped(fleet, group)
    report_stopped(fleet, services)  # first: one of them may be the registry
    for name in reversed(services):
        on_step(name, len(outcomes), len(kinds))
        outcomes |= _end_together(fleet, [name])
    with contextlib.suppress(OSError):  # other nodes may be recorded there
        fleet.home.nodes.rmdir()
    for outcome in outcomes.values():
        if isinstance(outcome, KopitiamError):
            raise outcome
    return [name for name, was_alive in outcomes.items() if was_alive]


def _end_together(fleet: Fleet, names: list[str]) -> dict[str, bool | KopitiamError]:
    def end(name: str) -> bool | KopitiamError:
        try:
            return end_node(fleet, name)
        except KopitiamError as error:
            return error

    with ThreadPoolExecutor(max_workers=len(names) or 1) as pool:
        return dict(zip(names, pool.map(end, names), strict=True))
