"""The pipeline and the barrier of a process that has both, and one Spark engine after the other.

A Spark engine that dies or does not answer is replaced, and the pipeline continues on the next one.
"""

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.batches import MOST_ATTEMPTS
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import EngineDied, ServiceError, StaleEpoch, StreamStuck, Unavailable
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind, NodeRecord
from kopitiam.pipeline.worker import PipelineWorker
from kopitiam.registry.records import Fence
from kopitiam.registry.registry import Registry
from kopitiam.runtime.pipeline import PipelineRuntime, pipeline_node
from kopitiam.spark.session import SparkEngine
from kopitiam.storage.port import StoragePort
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.system.health import Health
from kopitiam.system.threads import run_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_EVER_SECONDS = 1e9  # only this process can use the home, so no lease has to expire
_MOST_PAUSE_SECONDS = 60.0  # of the backoff between engines that made no progress
_RETRY_SECONDS = 2.0  # while the registry or the storage is unavailable
PIPELINE, LEADER = "pipeline-1", "monitor-1"
_log = logging.getLogger(__name__)


@dataclass
class RestartingPipeline:
    """A pipeline that continues when its Spark engine is lost: on another engine, under the next epoch, which
    fences the work of the one before."""

    settings: Settings
    registry: Registry
    bus: BusPort
    storage: StoragePort
    shards: range
    engine: SparkEngine
    scratch: Path
    health: Health
    is_patient: bool = True  # retries for ever; an impatient one fails, since its client waits
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
                self.health.failure = "the pipeline waits for the registry or the storage"
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
                self.health.failure = reason
                worker.fail_attempts(reason)
                self.engine.kill()

    def stop(self) -> None:
        self.stopping.set()
        if self._worker is not None:
            self._worker.stop()

    def _run_worker(self) -> None:
        self._fence = take_over(self.registry, PIPELINE)
        checkpoint = Home(self.settings.home).checkpoint(PIPELINE, self.shards)
        runtime = PipelineRuntime(self.engine.session, self.scratch, checkpoint, self.health)
        node = pipeline_node(
            self.settings,
            self.shards,
            self.registry,
            self.bus,
            self.storage,
            fence=self._fence,
            runtime=runtime,
        )
        self._worker = worker = PipelineWorker(node)
        if self.stopping.is_set():
            return
        self._reported = False
        if self.is_patient and self.settings.pipeline.warm_up:
            from kopitiam.runtime.warm_up import warm_up_beside  # noqa: PLC0415 - `kopi analyze` has no use for it

            warm_up_beside(worker)
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
        self.health.failure = f"{error}; Spark is being started again"

    def _restart_engine(self, pause_seconds: float) -> None:
        while not self.stopping.wait(pause_seconds):
            session: Future[SparkSession] = self.engine.restart()
            if (error := session.exception()) is None or self.stopping.is_set():
                return
            if not self.is_patient:
                raise error
            kept = self.engine.keep_log()
            _log.error("Spark does not start: %s; its log is kept in %s", error, kept)
            self.health.failure = "Spark does not start; the operator's log says why"
            pause_seconds = _MOST_PAUSE_SECONDS

    def _report_alarm(self) -> None:
        """Shows the reason why the pipeline does not work as an alarm of the node, until it is over."""
        fence, alarm = self._fence, self.health.reason
        if fence is None or self._reported == alarm:
            return
        try:
            report(self.registry, fence, "pipeline", host=self.settings.host, alarm=alarm)
            self._reported = alarm
        except StaleEpoch:
            return  # the pipeline was restarted meanwhile; the next call reports its new epoch
        except Unavailable as error:
            _log.info("the pipeline's state is not reported: %s", error)


@contextlib.contextmanager
def processing(
    pipeline: RestartingPipeline,
    failure: "Future[None]",
    *works: Callable[[], None],
    stop: Sequence[Callable[[], None]] = (),
) -> Iterator[None]:
    """Runs the pipeline, the barrier, and further works during the block. `failure` gets the reason when one
    of them fails."""
    registry, settings = pipeline.registry, pipeline.settings
    leader = take_over(registry, LEADER)
    coordinator = Coordinator(registry, pipeline.bus, leader)
    all_works = (pipeline.work, pipeline.watch, coordinator.run, *works)
    with run_threads(*all_works, stop=[*stop, pipeline.stop, coordinator.stop], failure=failure):
        report(registry, leader, "monitor", host=settings.host)
        yield


def take_over(registry: Registry, name: str) -> Fence:
    """Takes the node's lease under a new epoch, which fences an earlier process."""
    holder = uuid.uuid4().hex
    return Fence(name, registry.take_over(name, holder, _FOR_EVER_SECONDS), holder)


def report(
    registry: Registry,
    fence: Fence,
    kind: NodeKind,
    *,
    host: str,
    url: str | None = None,
    alarm: str | None = None,
) -> None:
    is_leader, now = kind == "monitor", registry.now()
    registry.report_node(
        NodeRecord(fence.name, kind, os.getpid(), url, "alive", now, fence.epoch, alarm, is_leader, host),
        fence,
    )
