"""`kopi serve`: gateway, pipeline and barrier in one process, on one home folder that outlives it."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import run_janitor
from kopitiam.gateway.server import serving
from kopitiam.landing.recognition import Premises
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.runtime.home import exclusive_home
from kopitiam.runtime.processing import RestartingPipeline, processing, report, take_over
from kopitiam.spark.s3a import spark_conf
from kopitiam.spark.session import SparkEngine, spark_engine
from kopitiam.spark.settings import SparkOptions
from kopitiam.storage.open import open_storage
from kopitiam.system.files import keep_private
from kopitiam.system.health import Health
from kopitiam.system.logs import KeptLogs, rotating_logs
from kopitiam.system.threads import fail

GATEWAY = "gateway-1"


@dataclass(frozen=True)
class Service:
    url: str
    registry: Registry
    engine: SparkEngine
    failure: Future[None]  # fails with the reason when a part of the service cannot work any more

    def wait(self) -> None:
        """Waits until Spark does not start or the service fails, and raises the reason."""
        self.engine.session.result()
        self.failure.result()


@contextlib.contextmanager
def embedded_service(settings: Settings, *, is_verbose: bool = False) -> Iterator[Service]:
    """A service on the home of the settings, which no other process may use meanwhile."""
    keep_private(settings.home, settings.umask)
    options = SparkOptions(settings.spark.master, spark_conf(settings), is_verbose=is_verbose)
    with (
        exclusive_home(settings.home) as scratch,
        rotating_logs(settings.home, settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "serve")) as engine,
        open_service(settings, engine, scratch) as service,
    ):
        yield service


@contextlib.contextmanager
def open_service(settings: Settings, engine: SparkEngine, scratch: Path) -> Iterator[Service]:
    """Serves clients while the block lasts; the next process on this home continues unfinished runs.

    It retries for ever, and is not ready meanwhile.
    """
    with (
        contextlib.closing(open_registry(settings.registry.url, settings.home, is_checked=True)) as registry,
        contextlib.closing(MemoryBus()) as bus,
    ):
        storage = open_storage(settings)
        Premises(settings.home, storage, settings.storage.url).recognize(registry)
        front, health = take_over(registry, GATEWAY), Health()
        gateway = open_gateway(front, settings, registry, bus, health)
        # Runs of an earlier process keep the number of shards that they were opened with.
        shards = range(max(settings.pipeline.shards, registry.max_shards()))
        pipeline = RestartingPipeline(settings, registry, bus, storage, shards, engine, scratch, health)
        stopping, failure = threading.Event(), Future[None]()
        tidying = functools.partial(run_janitor, gateway, stopping)
        on_ended = functools.partial(fail, failure, ServiceError("the gateway's server has ended"))
        try:
            with (
                processing(pipeline, failure, tidying, stop=[stopping.set]),
                serving(gateway, on_ended=on_ended) as url,
            ):
                report(registry, front, "gateway", host=settings.host, url=url)
                yield Service(url, registry, engine, failure)
        finally:
            close_gateway(gateway)
