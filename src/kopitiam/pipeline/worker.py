"""One pipeline: the stream of its shards, the final steps that it claims, and the messages that it handles.

The bus delivers END, BARRIER_FORWARD, requests for provisional answers, SQL queries, and Force End. Lost
messages about runs are recovered: the monitors' leader finds the run in the registry and publishes again.
"""

import contextlib
import functools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kopitiam.bus.port import BusPort
from kopitiam.contracts.batches import Batch
from kopitiam.contracts.errors import (
    EngineDied,
    KopitiamError,
    RunNotFound,
    ServiceError,
    StaleEpoch,
    Unavailable,
)
from kopitiam.contracts.messages import (
    END_TOPICS,
    FINAL_QUEUE,
    PROVISIONAL_QUEUE,
    SQL_QUEUE,
    BarrierForward,
    ForceEnd,
    Message,
    ProvisionalWanted,
    SqlRequest,
    TableEnd,
)
from kopitiam.contracts.runs import RunState
from kopitiam.landing.tidying import try_remove_material
from kopitiam.pipeline.attempts import DIED, Attempts
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.compaction import Compaction
from kopitiam.pipeline.finalize import Finalizer
from kopitiam.pipeline.reporting import Reports
from kopitiam.pipeline.source import LogBounds
from kopitiam.pipeline.sql_queries import SqlQueries
from kopitiam.pipeline.stream import Stream
from kopitiam.registry.records import Fence
from kopitiam.spark.executor_storage import ExecutorStorage
from kopitiam.spark.jobs import cancel_jobs, ping, public_reason
from kopitiam.spark.session import connect_storage
from kopitiam.spark.settings import is_cluster
from kopitiam.storage.port import StoragePort
from kopitiam.system.health import Health, Pulse

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_FINAL_STEPS_AT_ONCE = 2  # so that a small run does not wait for a large one
_SQL_QUERIES_AT_ONCE = 2
_CANCEL_SECONDS = 1.0
_WATCH_SECONDS = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PipelineNode:
    """Everything a pipeline needs to run."""

    name: str
    registry: "Registry"
    connect: "Callable[[], Registry]"  # opens the same registry in another process
    bus: BusPort
    storage: StoragePort
    hadoop: Mapping[str, str]  # Hadoop's options for the storage
    session: Future[SparkSession]
    scratch: Path
    checkpoint: Path
    bounds: LogBounds
    fence: Fence
    health: Health = field(default_factory=Health)
    answer_seconds: float = 20.0  # a JVM that does not answer for this long counts as dead


class PipelineWorker:
    """Runs one pipeline on one Spark session."""

    def __init__(self, node: PipelineNode) -> None:
        self.node = node
        self.stopping = threading.Event()
        self.ready = Future[None]()  # done when this worker handles messages
        self._attempts: Attempts | None = None
        self._pulse: Pulse | None = None
        self._executors: ExecutorStorage | None = None
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._reports = Reports(node.bus, node.registry)
        self._steps = ThreadPoolExecutor(_FINAL_STEPS_AT_ONCE, thread_name_prefix="final-step")
        self._provisional = ThreadPoolExecutor(1, thread_name_prefix="provisional")
        self._sql = ThreadPoolExecutor(_SQL_QUERIES_AT_ONCE, thread_name_prefix="sql")

    def work(self) -> None:
        """Runs until `stop`. Raises StaleEpoch if another process has taken over this pipeline, and
        EngineDied if the JVM died."""
        node = self.node
        if node.session.exception() is not None:
            return  # the session has the reason
        spark = node.session.result()
        connect_storage(spark, node.storage, node.hadoop)
        if is_cluster(str(spark.sparkContext.master)):
            self._executors = ExecutorStorage(spark, node.storage, node.name)
            self._executors.check_new()
            threading.Thread(target=self._watch_executors, name="executors", daemon=True).start()
        work = BatchWork(
            node.name,
            spark,
            node.registry,
            node.storage,
            node.fence,
            self.stopping,
            node.health,
            self._executors,
        )
        self._attempts = work.attempts
        self._finalizer = Finalizer(work, node.scratch)
        self._compaction = Compaction(work)
        self._sql_queries = SqlQueries(work, node.scratch)
        stream = Stream(work, node.connect, node.bounds, node.checkpoint, self._on_committed)
        self._pulse = Pulse(lambda: ping(spark), node.answer_seconds)
        try:
            with self._pulse.beating(), self._listening():
                self.ready.set_result(None)
                stream.run()
        except EngineDied:
            self.fail_attempts(DIED)
            raise
        finally:
            self._reports.close()
            if self._executors is not None:
                self._executors.close()

    def failure_reason(self) -> str | None:
        """Returns why this pipeline counts as dead; None if it works."""
        if self._pulse is None or not self._pulse.is_silent:
            return None
        return f"Spark's process has answered nothing for {self.node.answer_seconds:.0f} s"

    @property
    def alarm(self) -> str | None:
        """Why the work makes no progress, or has fewer executors than it could; None if all is well."""
        return self.node.health.reason or (self._executors.alarm if self._executors else None)

    def _watch_executors(self) -> None:
        """Executors may join at any time, and machines may lose the storage. A pipeline without any executor
        ends by itself after a while."""
        assert self._executors is not None
        while not self.stopping.wait(_WATCH_SECONDS):
            try:
                self._executors.check_new()
            except (ServiceError, Py4JError, OSError) as error:
                if self._is_engine_dead():
                    return
                _log.warning("executors: %s", error)

    def fail_attempts(self, reason: str) -> None:
        """Fails all running attempts: their engine died."""
        if self._attempts is not None:
            self._attempts.fail_all(reason)

    def stop(self) -> None:
        """Cancels running jobs and withdraws their attempts; the next process of this pipeline repeats
        them."""
        self.stopping.set()
        for steps in (self._steps, self._provisional, self._sql):
            steps.shutdown(wait=False, cancel_futures=True)
        if self._attempts is not None:
            self._attempts.withdraw_all()
        if self.node.session.done() and self.node.session.exception() is None:
            cancelling = threading.Thread(target=self._cancel_jobs, name="cancelling", daemon=True)
            cancelling.start()
            cancelling.join(_CANCEL_SECONDS)  # a JVM that hangs does not answer

    def _is_engine_dead(self) -> bool:
        return self._attempts is not None and self._attempts.is_engine_dead()

    def _cancel_jobs(self) -> None:
        with contextlib.suppress(Py4JError, OSError, AttributeError):
            self.node.session.result().sparkContext.cancelAllJobs()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        bus = self.node.bus
        subscriptions = [
            bus.subscribe(END_TOPICS, self._on_end),
            bus.consume(FINAL_QUEUE, self._on_forward),
            bus.consume(PROVISIONAL_QUEUE, self._on_provisional),
            bus.consume(SQL_QUEUE, self._on_sql),
            bus.listen(self._on_force_end),
        ]
        try:
            yield
        finally:
            for subscription in subscriptions:
                subscription.cancel()

    def _on_committed(self, batch: Batch) -> None:
        """Merges before it reports, since nothing is merged after the barrier opens."""
        tables: dict[str, set[str]] = defaultdict(set)
        for counts in batch.processed:
            tables[counts.run].add(counts.table)
        for run in batch.runs:
            self._compaction.compact(run)
        for run, names in tables.items():
            self._reports.progress(run, names, batch.shards)

    def _on_end(self, message: Message) -> None:
        """Reports progress, since the last chunks may have been processed before END arrived."""
        if isinstance(message, TableEnd):
            self._reports.progress(message.run, [message.table], self.node.bounds.shards)

    def _on_forward(self, message: Message) -> None:
        if isinstance(message, BarrierForward):
            self._submit(self._steps, f"final {message.run}", lambda: self._finish(message.run))

    def _on_provisional(self, message: Message) -> None:
        if isinstance(message, ProvisionalWanted):
            step = functools.partial(self._finalizer.provide, message.run)
            self._submit(self._provisional, f"provisional {message.run}", step)

    def _on_sql(self, message: Message) -> None:
        if isinstance(message, SqlRequest):
            step = functools.partial(self._sql_queries.answer, message)
            self._submit(self._sql, f"query {message.query}", step)

    def _on_force_end(self, message: Message) -> None:
        if isinstance(message, ForceEnd):
            for run in filter(self._is_ended, message.runs):
                cancel_jobs(self.node.session.result(), run)
                try_remove_material(self.node.storage, run)

    def _is_ended(self, run: str) -> bool:
        """Whether the registry has ended the run: a message alone neither ends a run nor removes answers."""
        try:
            return self.node.registry.get_run(run).state in (RunState.FAILED, RunState.ENDED)
        except RunNotFound:
            return False
        except Unavailable as error:  # the next batch reads the state, and a gateway removes the files
            _log.warning("run %s: Force End is ignored: %s", run, error, extra={"run": run})
            return False

    def _finish(self, run: str) -> None:
        try:
            rows = self._finalizer.finish(run)
        except Unavailable as error:
            self.node.health.on_final_step_failed(
                f"the final step waits to try again: {public_reason(error)}"
            )
            raise
        if rows is not None:
            self.node.health.on_final_step_succeeded()
            self._reports.answers(run, rows)

    def _submit(self, steps: ThreadPoolExecutor, name: str, step: Callable[[], None]) -> None:
        """Runs the step on another thread than the bus's, unless it is running already."""
        with self._lock:
            if name in self._running or self.stopping.is_set():
                return
            self._running.add(name)
        steps.submit(self._run_step, name, step)

    def _run_step(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except (RunNotFound, StaleEpoch) as error:
            _log.info("%s: %s", name, error)
        except KopitiamError as error:
            _log.warning("%s: %s", name, error)
        except Exception as error:
            if self._is_engine_dead():
                _log.warning("%s: ended with Spark's process: %s", name, type(error).__name__)
            elif not self.stopping.is_set():
                _log.exception("%s", name)
        finally:
            with self._lock:
                self._running.discard(name)
