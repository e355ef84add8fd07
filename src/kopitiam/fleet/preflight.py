"""What is wrong with the settings of a fleet that no single node can see."""

import fcntl
import time
from collections.abc import Sequence
from pathlib import Path

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.services import services_of
from kopitiam.fleet.services.spark import NAME as SPARK_MASTER
from kopitiam.fleet.services.spark import WORKER, SparkMaster, pipelines_and_cores
from kopitiam.registry.registry import Registry

_GIVING_BACK_SECONDS = 15.0  # for the cores of a pipeline that was stopped, or of a new worker
_LOOK_SECONDS = 0.2
_LEAST_EXECUTOR_MEGABYTES = 512  # Spark itself refuses less than 450


def check_settings(settings: Settings) -> None:
    services = [service.name for service in services_of(settings)]
    if settings.bus.url == "memory" and "rabbitmq" not in services:
        raise ConfigError("bus.url: a fleet wants amqp://…, or rabbitmq among nodes.services")
    _require_every_shard_once(settings)
    _require_a_whole_spark(services)
    if SPARK_MASTER in services:
        _require_something_for_every_pipeline(settings)
    if _is_served(settings.home):
        raise ConfigError(f"{settings.home}: a kopi serve uses this home; choose another")


def _require_every_shard_once(settings: Settings) -> None:
    """More than those of new runs are welcome: earlier runs end with the shards that they began with."""
    every = range(settings.pipeline.shards)
    given = sorted(shard for shards in settings.nodes.pipelines.values() for shard in shards)
    if given and (len(given) > len(set(given)) or not set(every) <= set(given)):
        raise ConfigError(
            f"nodes.pipelines: want each of the {len(every)} shards (pipeline.shards) once, "
            f"got {', '.join(map(str, given))}"
        )


def check_shards_of_open_runs(settings: Settings, registry: Registry) -> None:
    given = {shard for shards in settings.nodes.pipelines.values() for shard in shards}
    used = registry.max_shards()
    if given and (missing := [shard for shard in range(used) if shard not in given]):
        raise ConfigError(
            f"nodes.pipelines: runs that are under way have {used} shards; "
            f"keep a pipeline for {', '.join(map(str, missing))} until they end"
        )


def check_free_cores(
    newcomers: Sequence[str], settings: Settings, patience_seconds: float = _GIVING_BACK_SECONDS
) -> None:
    """Pipelines that run keep the cores that they were given, however many others there are by now. The
    settings are those with the addresses of the services in them."""
    master = SparkMaster(settings)
    if not newcomers or settings.spark.master != master.address().master:
        return
    needed = int(settings.spark.conf["spark.cores.max"]) * (len(newcomers) - 1) + 1
    deadline = time.monotonic() + patience_seconds
    while (free := master.free_cores()) < needed:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{', '.join(newcomers)}: Spark has {free} free cores, since pipelines that run keep theirs; "
                "add a spark-worker to nodes.services, or stop them first: kopi node stop"
            )
        time.sleep(_LOOK_SECONDS)


def _require_a_whole_spark(services: Sequence[str]) -> None:
    workers = [name for name in services if WORKER.fullmatch(name)]
    if workers and SPARK_MASTER not in services:
        raise ConfigError(f"nodes.services: {workers[0]} wants spark-master beside it")
    if SPARK_MASTER in services and not workers:
        raise ConfigError("nodes.services: spark-master wants spark-worker-1 beside it")


def _require_something_for_every_pipeline(settings: Settings) -> None:
    """One that gets no core would wait for ever."""
    limits = settings.spark
    pipelines, cores = pipelines_and_cores(settings)
    if cores < pipelines:
        raise ConfigError(f"spark.worker_cores: {pipelines} pipelines want a core each, there are {cores}")
    if limits.worker_megabytes < pipelines * _LEAST_EXECUTOR_MEGABYTES:
        least = f"{pipelines * _LEAST_EXECUTOR_MEGABYTES}m"
        raise ConfigError(
            f"spark.worker_memory: {pipelines} pipelines want at least {least}, got {limits.worker_memory}"
        )


def _is_served(home: Path) -> bool:
    """Whether somebody has the home for himself, as the embedded service does."""
    try:
        with (home / "serve.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
