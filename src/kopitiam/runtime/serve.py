"""`kopi serve`: gateway, pipeline and barrier in one process, on one home folder that outlives it.

A Spark engine that dies or does not answer is replaced, and the pipeline continues on the next one.
"""

import contextlib
import functools
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.batches import MOST_ATTEMPTS
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import EngineDied, ServiceError, StaleEpoch, StreamStuck, Unavailable
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import run_janitor
from kopitiam.gateway.server import serving
from kopitiam.landing.recognition import Premises
from kopitiam.pipeline.worker import PipelineWorker
from kopitiam.registry.records import Fence
from kopitiam.registry.registry import Registry, open_registry
from kopitiam.runtime.home import exclusive_home
from kopitiam.runtime.pipeline import PipelineRuntime, pipeline_node
from kopitiam.spark.session import SparkEngine, spark_engine
from kopitiam.spark.settings import SparkOptions
from kopitiam.storage.open import open_storage
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.system.files import keep_private
from kopitiam.system.health import Health
from kopitiam.system.logs import KeptLogs, rotating_logs
from kopitiam.system.threads import fail, run_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_EVER_SECONDS = 1e9  # only this process can use the home, so no lease has to expire
_MOST_PAUSE_SECONDS = 60.0  # of the backoff between engines that made no progress
_RETRY_SECONDS = 2.0  # while the registry or the storage is unavailable
GATEWAY, PIPELINE, LEADER = "gateway-1", "pipeline-1", "monitor-1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    url: str
    registry: Registry
    engine: SparkEngine
    trouble: Future[None]  # fails with the reason when a part of the service cannot work any more

    def wait(self) -> None:
        """Waits until Spark does not start or the service fails, and raises the reason."""
        self.engine.session.result()
        self.trouble.result()


@contextlib.contextmanager
def embedded_service(settings: Settings, *, is_verbose: bool = False) -> Iterator[Service]:
    """A service on the home of the settings, which no other process may use meanwhile."""
    keep_private(settings.home, settings.umask)
    options = SparkOptions(settings.spark.master, settings.spark.conf, is_verbose=is_verbose)
    with (
        exclusive_home(settings.home) as scratch,
        rotating_logs(settings.home, settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "serve")) as engine,
        open_service(settings, engine, scratch) as service,
    ):
        yield service


@contextlib.contextmanager
def open_service(
    settings: Settings, engine: SparkEngine, scratch: Path, *, is_patient: bool = True
) -> Iterator[Service]:
    """Serves clients while the block lasts; the next process on this home continues unfinished runs.

    A patient service retries for ever, and is not ready meanwhile. An impatient one fails, since its client
    waits.
    """
    with (
        contextlib.closing(open_registry(settings.registry.url, settings.home, is_checked=True)) as registry,
        contextlib.closing(MemoryBus()) as bus,
    ):
        Premises(settings.home, open_storage(settings), settings.storage.url).recognize(registry)
        front, health = _take_over(registry, GATEWAY), Health()
        gateway = open_gateway(front, settings, registry, bus, health)
        # Runs of an earlier process keep the number of shards that they were opened with.
        shards = range(max(settings.pipeline.shards, registry.max_shards()))
        pipeline = RestartingPipeline(settings, registry, bus, shards, engine, scratch, health, is_patient)
        leader = _take_over(registry, LEADER)
        coordinator = Coordinator(registry, bus, leader)
        stopping, trouble = threading.Event(), Future[None]()
        tidying = functools.partial(run_janitor, gateway, stopping)
        works = (pipeline.work, pipeline.watch, coordinator.run, tidying)
        stop = [stopping.set, pipeline.stop, coordinator.stop]
        on_ended = functools.partial(fail, trouble, ServiceError("the gateway's server has ended"))
        try:
            with (
                run_threads(*works, stop=stop, trouble=trouble),
                serving(gateway, on_ended=on_ended) as url,
            ):
                _report(registry, front, "gateway", url)
                _report(registry, leader, "monitor")
                yield Service(url, registry, engine, trouble)
        finally:
            close_gateway(gateway)


@dataclass
class RestartingPipeline:
    """A pipeline that continues when its Spark engine is lost: on another engine, under the next epoch, which
    fences the work of the one before."""

    settings: Settings
    registry: Registry
    bus: BusPort
    shards: range
    engine: SparkEngine
    scratch: Path
    health: Health
    is_patient: bool
    stopping: threading.Event = field(default_factory=threading.Event)
    _worker: PipelineWorker | None = None
    _fence: Fence | None = None
    _reported: str | bool | None = False  # the alarm that was reported; False before the first report

    def work(self) -> None:
        """Runs until it is stopped, or until an impatient pipeline fails, and raises the reason."""
        fruitless = 0
        while not self.stopping.is_set():
            steps = self.health.steps
            try:
                self._run_worker()
                return  # stopped, or Spark did not start: then the session has the reason
            except Unavailable as error:
                if not self.is_patient:
                    raise
                _log.warning("%s; the pipeline starts again", error)
                self.health.trouble = "the pipeline waits for the registry or the storage"
                self.stopping.wait(_RETRY_SECONDS)
                continue
            except (EngineDied, StreamStuck) as error:
                if self.stopping.is_set():
                    return
                fruitless = 0 if self.health.steps > steps else fruitless + 1
                self._on_engine_lost(error, fruitless)
            self._restart_engine(min(2.0**fruitless, _MOST_PAUSE_SECONDS) if fruitless else 0)

    def watch(self) -> None:
        """Reports alarms, and kills an engine that does not answer, so that `work` starts another."""
        given_up: PipelineWorker | None = None
        while not self.stopping.wait(min(1.0, self.settings.monitor.heartbeat_seconds)):
            worker = self._worker
            self._report_alarm()
            if worker is not given_up and worker is not None and (reason := worker.failure_reason()):
                given_up = worker
                _log.error("%s; it is killed, and another is started", reason)
                self.health.trouble = reason
                worker.fail_attempts(reason)
                self.engine.kill()

    def stop(self) -> None:
        self.stopping.set()
        if self._worker is not None:
            self._worker.stop()

    def _run_worker(self) -> None:
        self._fence = _take_over(self.registry, PIPELINE)
        checkpoint = Home(self.settings.home).checkpoint(PIPELINE, self.shards)
        runtime = PipelineRuntime(self.engine.session, self.scratch, checkpoint, self.health)
        node = pipeline_node(
            self.settings, self.shards, self.registry, self.bus, fence=self._fence, runtime=runtime
        )
        self._worker = worker = PipelineWorker(node)
        if self.stopping.is_set():
            return
        self._reported = False
        try:
            worker.work()
        finally:
            worker.stop()

    def _on_engine_lost(self, error: ServiceError, fruitless: int) -> None:
        """Raises the error if the pipeline is not to be restarted."""
        kept = self.engine.keep_log()
        _log.error("%s%s", error, f"; Spark's log is kept in {kept}" if kept else "")
        has_died_enough = isinstance(error, EngineDied) and fruitless > MOST_ATTEMPTS
        if not self.is_patient and (has_died_enough or isinstance(error, StreamStuck)):
            raise error
        self.health.trouble = f"{error}; Spark is being started again"

    def _restart_engine(self, pause_seconds: float) -> None:
        while not self.stopping.wait(pause_seconds):
            session: Future[SparkSession] = self.engine.restart()
            if (error := session.exception()) is None or self.stopping.is_set():
                return
            if not self.is_patient:
                raise error
            kept = self.engine.keep_log()
            _log.error("Spark does not start: %s; its log is kept in %s", error, kept)
            self.health.trouble = "Spark does not start; the operator's log says why"
            pause_seconds = _MOST_PAUSE_SECONDS

    def _report_alarm(self) -> None:
        """Shows the reason why the pipeline does not work as an alarm of the node, until it is over."""
        fence, alarm = self._fence, self.health.reason
        if fence is None or self._reported == alarm:
            return
        try:
            _report(self.registry, fence, "pipeline", alarm=alarm)
            self._reported = alarm
        except StaleEpoch:
            return  # the pipeline was restarted meanwhile; the next call reports its new epoch
        except Unavailable as error:
            _log.info("the pipeline's state is not reported: %s", error)


def _take_over(registry: Registry, name: str) -> Fence:
    """Takes the node's lease under a new epoch, which fences an earlier process."""
    holder = uuid.uuid4().hex
    return Fence(name, registry.take_over(name, holder, _FOR_EVER_SECONDS), holder)


def _report(
    registry: Registry, fence: Fence, kind: NodeKind, url: str | None = None, alarm: str | None = None
) -> None:
    node = NodeRecord(fence.name, kind, os.getpid(), url, "alive", registry.now(), fence.epoch, alarm)
    registry.report_node(replace(node, leader=kind == "monitor"), fence)
