"""All nodes of a fleet at once: up in the order in which they need each other, down the other way round."""

import contextlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from kopitiam.contracts.errors import KopitiamError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.nodes import Fleet, end_node, joining_pipelines, launch_node, start_node
from kopitiam.fleet.processes import is_running
from kopitiam.fleet.readiness import await_ready
from kopitiam.fleet.reports import report_stopped
from kopitiam.fleet.services import in_order, service_settings, services_of
from kopitiam.fleet.services.spark_master import NAME as SPARK_MASTER
from kopitiam.fleet.soundness import require_cores_for, require_runs_served, require_sound
from kopitiam.fleet.status import NodeStatus, fleet_status
from kopitiam.landing.recognition import Premises
from kopitiam.registry.registry import open_registry
from kopitiam.storage.open import open_storage
from kopitiam.system.files import keep_private

PATIENCE_SECONDS = 120.0
OnStep = Callable[[str, int, int], None]  # what is waited for, steps done, steps in all
_STOPPED_TOGETHER: tuple[NodeKind, ...] = ("monitor", "gateway", "pipeline")


def _quietly(_what: str, _done: int, _total: int) -> None:
    pass


def up(
    fleet: Fleet, patience_seconds: float = PATIENCE_SECONDS, on_step: OnStep = _quietly
) -> list[NodeStatus]:
    """Returns when every node is ready; if one does not come up, what was started here is stopped again."""
    require_sound(fleet.settings)
    if fleet.settings.nodes.gateways:
        fleet.settings.gateway.require_guarded()
    keep_private(fleet.settings.home, fleet.settings.umask)
    started: list[str] = []
    try:
        _bring_up(fleet, started, time.monotonic() + patience_seconds, on_step)
    except BaseException:
        with contextlib.suppress(KopitiamError):  # there is something else to tell
            _stop(fleet, started)
        raise
    return fleet_status(fleet)


def down(fleet: Fleet, on_step: OnStep = _quietly) -> list[str]:
    """Gives the names of those that there were to stop. Works on whatever is left of a fleet."""
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
        require_runs_served(settings, registry)
        if SPARK_MASTER in services:
            require_cores_for(joining_pipelines(fleet), settings)
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


def _stop(fleet: Fleet, names: Iterable[str], on_step: OnStep = _quietly) -> list[str]:
    """Monitors first, or they would revive the others; services last, since all need them. Whatever fails,
    the others are stopped; then the first failure is told."""
    kinds = {name: fleet.kinds[name] for name in names}
    services = in_order(name for name, kind in kinds.items() if kind == "service")
    outcomes: dict[str, bool | KopitiamError] = {}
    for kind in _STOPPED_TOGETHER:
        group = [name for name in kinds if kinds[name] == kind]
        on_step(", ".join(group), len(outcomes), len(kinds))
        outcomes |= _end_together(fleet, group)
        report_stopped(fleet, group)
    report_stopped(fleet, services)  # afterwards there may be no registry to tell
    for name in reversed(services):
        on_step(name, len(outcomes), len(kinds))
        outcomes |= _end_together(fleet, [name])
    with contextlib.suppress(OSError):  # others may have nodes there
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
