"""When the nodes that were started can do their work: they live, have said so, gateways take runs, and
pipelines have Spark.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from kopitiam.contracts.errors import ServiceError, Unavailable
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import Launched
from kopitiam.fleet.records import read_record
from kopitiam.registry.port import RegistryPort
from kopitiam.system.logs import last_words

_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 5.0


def ready_mark(home: Path, name: str, pid: int) -> Path:
    """A pipeline makes it in its scratch folder when it has Spark; that it lives, it says long before."""
    return FleetHome(home).scratch(name) / str(pid) / "ready"


def await_ready(
    home: FleetHome,
    registry: RegistryPort,
    launched: Sequence[Launched],
    deadline: float,
    on_wait: Callable[[list[str]], None],
) -> None:
    """`on_wait` hears what is still missing. The first node to end is told, with its reason."""
    # The certificate is for clients, who may know the gateway by another name.
    with httpx.Client(verify=False, timeout=_ANSWER_SECONDS) as http:  # noqa: S501
        while True:
            for node in launched:
                node.require_life()
            missing = _missing(home, registry, http, [node.name for node in launched])
            on_wait(missing)
            if not missing:
                return
            if time.monotonic() > deadline:
                raise ServiceError(f"not ready in time: {', '.join(missing)}{_words(launched, missing[0])}")
            time.sleep(_LOOK_SECONDS)


def _words(launched: Sequence[Launched], name: str) -> str:
    logs = [f":{last_words(node.log, node.log_start)}" for node in launched if node.name == name]
    return "".join(logs)


def _missing(home: FleetHome, registry: RegistryPort, http: httpx.Client, names: list[str]) -> list[str]:
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
    """An earlier life may still be known as alive."""
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
