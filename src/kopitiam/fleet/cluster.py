"""Brings the nodes of this machine up, in order of dependency, waits until they are ready, and takes them
down in reverse."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx

from kopitiam.contracts.addresses import reachable
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError, ServiceError, Unavailable
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.fleet.home import read_record
from kopitiam.fleet.lifecycle import (
    Fleet,
    added_pipelines,
    end_node,
    launch_node,
    report_services,
    report_stopped,
    report_stopped_services,
)
from kopitiam.fleet.preflight import (
    check_free_cores,
    check_machines,
    check_settings,
    check_shards_of_open_runs,
)
from kopitiam.fleet.processes import Launched, is_running
from kopitiam.fleet.services import find_service, in_start_order, service_settings
from kopitiam.fleet.services.spark import SPARK_MASTER, WORKER
from kopitiam.fleet.status import NodeStatus, fleet_status
from kopitiam.landing.recognition import Premises
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.storage.open import open_storage
from kopitiam.system.files import keep_private
from kopitiam.system.logs import last_lines

_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
PATIENCE_SECONDS = 300.0  # on a loaded machine
OnStep = Callable[[str, int, int], None]  # waiting for, steps done, steps in all
_STARTED_IN_ORDER: tuple[NodeKind, ...] = ("monitor", "pipeline", "gateway")
_STOPPED_TOGETHER: tuple[NodeKind, ...] = ("monitor", "gateway", "pipeline")


def await_ready(
    fleet: Fleet,
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
            missing = _missing(fleet, registry, http, [node.name for node in launched])
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


def _missing(fleet: Fleet, registry: Registry, http: httpx.Client, names: list[str]) -> list[str]:
    try:
        reported = {node.name: node for node in registry.nodes()}
    except Unavailable:
        return names
    nodes = [reported[name] for name in names if name in reported]
    ready = [node.name for node in nodes if _is_ready(fleet, http, node)]
    missing = [name for name in names if name not in ready]
    has_monitor = any(node.kind == "monitor" for node in nodes)
    if not missing and has_monitor and not any(node.leader for node in reported.values()):
        return ["a monitor that leads"]
    return missing


def _is_ready(fleet: Fleet, http: httpx.Client, node: NodeRecord) -> bool:
    record = read_record(fleet.home, node.name)
    if record is None or not record.is_process_of(node) or node.state != "alive":
        return False
    if node.kind == "pipeline":
        return fleet.home.ready_mark(node.name, record.pid).exists()
    return node.kind != "gateway" or _takes_runs(http, local_url(fleet.settings, node.name, node.url))


def local_url(settings: Settings, name: str, url: str | None) -> str:
    """The URL of a gateway on this machine, for clients here. The one that it advertises may be known to
    other machines only."""
    host, port = settings.gateway.address
    own_port = settings.gateway_port(name) if port else urlsplit(url or "").port
    return settings.gateway.url_at(reachable(host), own_port or 0)


def _takes_runs(http: httpx.Client, url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get(f"{url}/readyz").status_code == httpx.codes.OK
    return False


def _ignore(_what: str, _done: int, _total: int) -> None:
    pass


def up(
    fleet: Fleet, patience_seconds: float = PATIENCE_SECONDS, on_step: OnStep = _ignore
) -> list[NodeStatus]:
    """Start the nodes of this machine and wait until they are ready. If one fails, the nodes started here are
    stopped again."""
    with fleet.naming_machine():
        check_settings(fleet.settings)
        check_machines(fleet.settings)
        if "gateway" in fleet.kinds_here.values():
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
    """Stop the nodes of this machine; returns the names of those that were running. Also works on an
    incomplete fleet."""
    with fleet.naming_machine():
        return _stop(fleet, fleet.kinds_here, on_step)


def _bring_up(fleet: Fleet, started: list[str], deadline: float, on_step: OnStep) -> None:
    here, settings = fleet.kinds_here, fleet.settings
    services = in_start_order(name for name, kind in here.items() if kind == "service")
    workers = [name for name in services if WORKER.fullmatch(name)]
    nodes = [name for kind in _STARTED_IN_ORDER for name in here if here[name] == kind]
    is_new = {name: not is_running(fleet.home, name) for name in (*services, *nodes)}
    total = len(is_new)

    def start(names: Iterable[str]) -> None:
        fleet.home.make()
        for name in names:
            on_step(name, services.index(name), total)
            started.extend([name] if is_new[name] else [])
            find_service(name, settings).start()

    def wait_for(names: Iterable[str]) -> None:
        _await_services(settings, names, deadline, lambda late: on_step(late, len(services), total))

    start(name for name in services if name not in workers)
    wait_for(name for name in settings.nodes.services if not WORKER.fullmatch(name))
    settings = service_settings(settings)
    with contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry:
        if workers or {"gateway", "pipeline"} & set(here.values()):
            Premises(settings.home, open_storage(settings), settings.storage.url).require(registry)
        start(workers)
        report_services(fleet, registry, [name for name in services if is_new[name]], "starting")
        if "pipeline" in here.values():
            wait_for(name for name in settings.nodes.services if WORKER.fullmatch(name))
        check_shards_of_open_runs(settings, registry)
        if SPARK_MASTER in settings.nodes.services:
            check_free_cores(added_pipelines(fleet), settings)
        launched = []
        for name in nodes:
            started += [name] if is_new[name] else []
            launched.append(launch_node(fleet, name))
        on_wait = lambda late: on_step(", ".join(late), total - len(late), total)  # noqa: E731
        await_ready(fleet, registry, launched, deadline, on_wait)


def _await_services(
    settings: Settings, names: Iterable[str], deadline: float, on_wait: Callable[[str], None]
) -> None:
    """Wait until these services of other machines answer; one of several Spark workers is enough. Raises
    `ServiceError` on timeout."""
    services = {name: find_service(name, settings) for name in names}
    silent = {name for name in services if not settings.is_here(name)}
    while True:
        silent = {name for name in silent if not services[name].probe()}
        if any(WORKER.fullmatch(name) for name in services.keys() - silent):
            return
        if not silent:
            return
        late = ", ".join(f"{name} on {settings.host_of(name)}" for name in in_start_order(silent))
        if time.monotonic() > deadline:
            raise ServiceError(f"no answer in time: {late}")
        on_wait(late)
        time.sleep(_POLL_SECONDS)


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
    report_stopped_services(fleet, services)
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
