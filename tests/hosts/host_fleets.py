"""A fleet on six machines: services, Spark's master, two workers, gateways and pipeline, clients. Monitors
are on three of them. `kopi cluster up` on each machine starts its nodes.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
from decisions import record_decisions
from lan import Lan
from machines import Machine, require_machines

from kopitiam.contracts.config import NodeSection, Settings
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import NodeRecord
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import NODE_VARIABLE
from kopitiam.fleet.services import service_settings
from kopitiam.registry.registry import Registry, connect_registry
from kopitiam.system.settings import load_settings
from kopitiam_chaos.observer import RegistryObserver, read_whole
from rabbitmq_server import ensure_installed

KOPI = str(Path(sys.executable).with_name("kopi"))
HOSTS = {
    "postgresql": "h1",
    "rabbitmq": "h1",
    "monitor-1": "h1",
    "spark-master": "h2",
    "gateway-2": "h2",
    "monitor-2": "h2",
    "spark-worker-1": "h3",
    "spark-worker-2": "h4",
    "gateway-1": "h5",
    "pipeline-1": "h5",
    "monitor-3": "h5",
}
CLIENTS = "h6"
PATIENCE_SECONDS = 400.0
BEAT_SECONDS, TIMEOUT_SECONDS = 1, 6
_LOOK_SECONDS = 0.1
_CONFIG = """\
home = "{home}"
[storage]
{storage}
[gateway]
listen = "0.0.0.0:8440"
insecure = true
lease_seconds = 300
[services]
listen = "0.0.0.0"
secret = "known to all machines of this fleet"
[monitor]
heartbeat_seconds = {beat}
timeout_seconds = {timeout}
revive = "{ssh} {{host}} {kopi} node start {{node}} --config {{config}}"
revive_limit = 20
[spark]
worker_cores = 1
worker_memory = "700m"
patience_seconds = 60
[spark.conf]
"spark.driver.memory" = "700m"
[nodes]
gateways = {gateways}
monitors = {monitors}
services = {services}
[nodes.hosts]
{hosts}
"""
_SHORT_LIVED = {  # half the time to the first answer
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    "KOPI_PIPELINE__WARM_UP": "false",
}


class HostFleet:
    """Machines with a fleet on them."""

    def __init__(self, folder: Path, hosts: Mapping[str, str] = HOSTS) -> None:
        """`hosts` says which machine runs which node."""
        self.lan = Lan(folder / "lan", _SHORT_LIVED)
        self.config = folder / "fleet.toml"
        self.hosts = dict(hosts)
        self.storage = {"url": f"file://{self.lan.storage}"}  # its settings
        self.kept_disks = {hosts["postgresql"]}  # of machines that get them back when they are replaced
        self.notes: list[str] = []
        self._lost_logs: dict[str, bytes] = {}  # of monitors, from disks that were lost
        self.lan.add(*sorted({*hosts.values(), CLIENTS}))
        self.write_config()

    def write_config(self) -> None:
        gateways = [name for name in self.hosts if name.startswith("gateway-")]
        monitors = [name for name in self.hosts if name.startswith("monitor-")]
        others = {*gateways, *monitors, "pipeline-1"}
        text = _CONFIG.format(
            home=self.lan.home,
            storage=_as_toml(self.storage),
            ssh=self.lan.ssh,
            kopi=KOPI,
            hosts=_as_toml(self.hosts),
            gateways=json.dumps(sorted(gateways)),
            monitors=json.dumps(sorted(monitors)),
            services=json.dumps([name for name in self.hosts if name not in others]),
            beat=BEAT_SECONDS,
            timeout=TIMEOUT_SECONDS,
        )
        beside = self.config.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.config)  # atomically: nodes read it at any time

    def machine(self, name: str) -> Machine:
        return self.lan.machines[name]

    @property
    def members(self) -> list[str]:
        """The machines that run nodes."""
        return sorted(set(self.hosts.values()))

    # -- commands

    def up(self) -> None:
        """Boot all machines, and bring up the fleet on all of them at once."""
        self.lan.start()
        for machine in self.lan.machines.values():
            machine.boot()
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(self.up_on, self.members))

    def up_on(self, host: str) -> None:
        begun = time.monotonic()
        self.kopi(host, "cluster", "up", "--patience", str(PATIENCE_SECONDS))
        self.note(f"{host} is up after {time.monotonic() - begun:.0f} s")

    def kopi(self, host: str, *words: str, **environment: str) -> Any:
        """Run a command of the fleet on a machine, and return what it prints as JSON."""
        done = self.machine(host).run(KOPI, *words, "--config", str(self.config), "--json", **environment)
        return json.loads(done.stdout)

    def submit(self, data: Path, out: Path, *options: str, server: str | None = None) -> None:
        """Submit a folder from the clients' machine, and wait for the answers."""
        servers = server or ",".join(self.urls)
        self.machine(CLIENTS).run(
            *(KOPI, "submit", str(data), "--server", servers, "--out", str(out)),
            *("--patience", str(PATIENCE_SECONDS), *options),
            seconds=2 * PATIENCE_SECONDS,
        )

    def close(self) -> None:
        if "registry" in vars(self):
            self.registry.close()
        self.lan.close()

    # -- state

    @property
    def urls(self) -> list[str]:
        return [f"http://{self.hosts[name]}:8440" for name in self.hosts if name.startswith("gateway-")]

    @property
    def address_urls(self) -> str:
        """The same with addresses, for threads of this process that are inside a machine."""
        names = [self.hosts[name] for name in self.hosts if name.startswith("gateway-")]
        return ",".join(f"http://{self.machine(name).address}:8440" for name in names)

    @cached_property
    def settings(self) -> Settings:
        """The settings for this process, which observes the fleet by the addresses of its machines."""
        settings = load_settings(self.config).model_copy(update={"node": NodeSection(host=CLIENTS)})
        settings = service_settings(settings)
        registry = settings.registry.url
        for machine in self.lan.machines.values():
            registry = registry.replace(f"@{machine.name}:", f"@{machine.address}:")
        return settings.model_copy(
            update={"registry": settings.registry.model_copy(update={"url": registry})}
        )

    @cached_property
    def registry(self) -> Registry:
        return connect_registry(self.settings.registry.url, self.lan.folder)

    @contextlib.contextmanager
    def watching(self) -> Iterator[RegistryObserver]:
        """Observe the registry and the monitors' logs, which no cut keeps this process from doing."""
        with RegistryObserver(self.settings, self.read_log) as observer:
            yield observer

    def kill(self, node: str) -> None:
        """Kill the process of a node on its machine, and all its children."""
        variable = str(FleetHome(self.lan.home, self.hosts[node]).record(node))
        for process in self.machine(self.hosts[node]).processes():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(NODE_VARIABLE) == variable:
                    process.kill()

    def power_off(self, host: str) -> None:
        """Power a machine off. Unless it is one of those that keep it, its disk is lost."""
        self.machine(host).power_off()
        if host not in self.kept_disks:
            for name in self.settings.nodes.monitors:
                if self.hosts.get(name) == host:
                    self._lost_logs[name] = self.read_log(name)
            self.machine(host).lose_disk()

    def read_log(self, node: str) -> bytes:
        """Everything that a monitor has logged, on lost disks too."""
        return self._lost_logs.get(node, b"") + read_whole(self.log_file(node))

    def log_file(self, node: str) -> Path:
        return FleetHome(self.machine(self.hosts[node]).disk).log(node)

    def log(self, node: str) -> str:
        file = self.log_file(node)
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def nodes(self) -> dict[str, NodeRecord]:
        """The node records of the registry; none while it is unavailable."""
        try:
            return {node.name: node for node in self.registry.nodes()}
        except Unavailable:
            return {}

    def is_whole(self) -> bool:
        """Whether every node is alive without an alarm, one monitor leads, and Spark knows the pipeline."""
        nodes = self.nodes()
        states = [
            nodes[name].state == "alive" and not nodes[name].alarm for name in self.hosts if name in nodes
        ]
        leaders = [node for node in nodes.values() if node.leader]
        is_alive = len(states) == len(self.hosts) and all(states)
        return is_alive and len(leaders) == 1 and self._has_application()

    def _has_application(self) -> bool:
        """Whether the Spark master knows the pipeline: one that lost its disk has forgotten it, and the
        pipeline, which looks alive meanwhile, is about to leave and be revived."""
        host, port = (
            self.machine(self.hosts["spark-master"]).address,
            urlsplit(self.settings.spark.master).port,
        )
        try:
            page = httpx.get(
                f"http://{host}:{(port or 0) + 1}/json/", timeout=TIMEOUT_SECONDS, trust_env=False
            )
            return bool(page.json()["activeapps"])
        except (httpx.TransportError, ValueError):
            return False

    def processed(self, run: str) -> int:
        """Processed chunks of the run; 0 while the registry is unavailable."""
        with contextlib.suppress(Unavailable):
            shards = self.registry.progress(run).values()
            return sum(volume.chunks for by_shard in shards for volume in by_shard.values())
        return 0

    def wait(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until the condition holds; returns the seconds. `what` completes the error "not …"."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < seconds, (
                f"not {what} after {seconds:.0f} s: {self.status_text()}"
            )
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - begun

    def await_whole(self) -> float:
        return self.wait(self.is_whole, "whole")

    def note(self, text: str) -> None:
        self.notes.append(text)
        sys.stdout.write(f"\n  {text}")

    def status_text(self) -> str:
        states = {
            node.name: (node.host, node.state, node.epoch, node.leader, node.alarm)
            for node in self.nodes().values()
        }
        return f"{states}; {'; '.join(self.notes)}"


def _as_toml(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items())


@contextlib.contextmanager
def running(fleet: HostFleet) -> Iterator[HostFleet]:
    """Keep the fleet up while the block lasts. Skips the test where there can be none."""
    require_machines()
    ensure_installed()
    try:
        fleet.up()
        fleet.await_whole()
        record_decisions(fleet)
        yield fleet
    finally:
        fleet.close()
