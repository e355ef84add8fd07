"""Checks of a fleet's settings as a whole, before its nodes are started. All raise `ConfigError`."""

import shlex
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from kopitiam.contracts.addresses import is_loopback
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.services import services_of
from kopitiam.fleet.services.spark import SPARK_MASTER, WORKER, SparkMaster, pipelines_and_cores
from kopitiam.registry.registry import Registry
from kopitiam.spark.s3a import spark_conf
from kopitiam.system.files import is_locked

_RELEASE_SECONDS = 15.0  # until a stopped pipeline releases its cores, or a new worker registers
_POLL_SECONDS = 0.2
_LEAST_EXECUTOR_MEGABYTES = 512  # Spark itself refuses less than 450


def check_settings(settings: Settings) -> None:
    services = [service.name for service in services_of(settings)]
    if settings.bus.url == "memory" and "rabbitmq" not in services:
        raise ConfigError("bus.url: a fleet needs amqp://…, or rabbitmq among nodes.services")
    _check_shards(settings)
    _check_spark_services(services)
    if SPARK_MASTER in services:
        _check_spark_resources(settings)
    if any(map(settings.is_here, settings.nodes.pipelines)):
        spark_conf(settings)
    if _is_served(settings.home):
        raise ConfigError(f"{settings.home}: a kopi serve uses this home; choose another")


def check_machines(settings: Settings) -> None:
    """Checks which machine runs what, and that machines can reach each other."""
    nodes, host = settings.nodes, settings.host
    if not nodes.hosts:
        return
    if missing := [name for name in nodes.kinds if name not in nodes.hosts]:
        raise ConfigError(f"nodes.hosts: which machine runs {', '.join(missing)}?")
    if host not in nodes.machines:
        raise ConfigError(
            f"nodes.hosts: no node runs on {host}, which is the name of this machine; there are "
            f"{', '.join(nodes.machines)}: set node.host (KOPI_NODE__HOST)"
        )
    if settings.spans_machines:
        _check_services_for_others(settings)
        _check_revival_of_others(settings)
        _check_own_address(host)


def _check_services_for_others(settings: Settings) -> None:
    services, section = settings.nodes.services, settings.services
    if settings.registry.url == "sqlite" and "postgresql" not in services:
        raise ConfigError(
            "registry.url: machines cannot share SQLite; "
            "expected postgresql://…, or postgresql in nodes.services"
        )
    if services and (is_loopback(section.listen) or not section.secret.get_secret_value()):
        raise ConfigError(
            f"services.listen: {services[0]} on {settings.host_of(services[0])} must be reached from other "
            'machines; set services.listen = "0.0.0.0" and services.secret'
        )


def _check_revival_of_others(settings: Settings) -> None:
    command = settings.monitor.revive
    if shlex.split(command)[:1] == ["kopi"]:
        raise ConfigError(
            f"monitor.revive: {command!r} runs on the leader's machine; expected a command that reaches the "
            "node's, such as: ssh {host} kopi node start {node} --config {config}"
        )


def _check_own_address(host: str) -> None:
    """The others connect to this name, and drivers, executors and services tell it to each other."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConfigError(f"node.host {host}: cannot be resolved: {error.strerror}") from None
    if local := sorted(str(address) for address in addresses if is_loopback(str(address))):
        raise ConfigError(
            f"node.host {host}: is {local[0]} here, where other machines cannot reach it; correct "
            "/etc/hosts, or set node.host to the address of this machine"
        )
    if not any(_is_own(str(address)) for address in addresses):
        raise ConfigError(f"node.host {host}: {', '.join(map(str, addresses))} is no address of this machine")


def _is_own(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _check_shards(settings: Settings) -> None:
    """Additional shards are allowed: earlier runs keep the number of shards that they started with."""
    every = range(settings.pipeline.shards)
    assigned = sorted(shard for shards in settings.nodes.pipelines.values() for shard in shards)
    if assigned and (len(assigned) > len(set(assigned)) or not set(every) <= set(assigned)):
        raise ConfigError(
            f"nodes.pipelines: expected each of the {len(every)} shards (pipeline.shards) once, "
            f"got {', '.join(map(str, assigned))}"
        )


def check_shards_of_open_runs(settings: Settings, registry: Registry) -> None:
    assigned = {shard for shards in settings.nodes.pipelines.values() for shard in shards}
    used = registry.max_shards()
    if assigned and (missing := [shard for shard in range(used) if shard not in assigned]):
        raise ConfigError(
            f"nodes.pipelines: runs that are under way have {used} shards; "
            f"keep a pipeline for {', '.join(map(str, missing))} until they end"
        )


def check_free_cores(
    new_pipelines: Sequence[str], settings: Settings, patience_seconds: float = _RELEASE_SECONDS
) -> None:
    """Wait until Spark has free cores for the new pipelines; running pipelines keep theirs.

    `settings` must contain the addresses of the services.
    """
    master = SparkMaster(settings)
    if not new_pipelines or settings.spark.master != master.address().master:
        return
    needed = int(settings.spark.conf.get("spark.cores.max", 1)) * (len(new_pipelines) - 1) + 1
    deadline = time.monotonic() + patience_seconds
    while (free := master.free_cores()) < needed:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{', '.join(new_pipelines)}: Spark has {free} free cores, as running pipelines keep theirs; "
                "add a spark-worker to nodes.services, or stop them first: kopi node stop"
            )
        time.sleep(_POLL_SECONDS)


def _check_spark_services(services: Sequence[str]) -> None:
    workers = [name for name in services if WORKER.fullmatch(name)]
    if workers and SPARK_MASTER not in services:
        raise ConfigError(f"nodes.services: {workers[0]} needs spark-master")
    if SPARK_MASTER in services and not workers:
        raise ConfigError("nodes.services: spark-master needs spark-worker-1")


def _check_spark_resources(settings: Settings) -> None:
    """A pipeline without a core would wait for ever."""
    limits = settings.spark
    pipelines, cores = pipelines_and_cores(settings)
    if cores < pipelines:
        raise ConfigError(f"spark.worker_cores: {pipelines} pipelines need a core each, there are {cores}")
    if limits.worker_megabytes < pipelines * _LEAST_EXECUTOR_MEGABYTES:
        least = f"{pipelines * _LEAST_EXECUTOR_MEGABYTES}m"
        raise ConfigError(
            f"spark.worker_memory: {pipelines} pipelines need at least {least}, got {limits.worker_memory}"
        )


def _is_served(home: Path) -> bool:
    """Whether `kopi serve` holds the home's lock."""
    return is_locked(home / "serve.lock")
