"""A pipeline at work: the stream of its shards, the final steps that fall to it, and what it is told.

The bus brings END, BARRIER_FORWARD, wishes for provisional answers, and Force End. None of it is waited
for: what is lost on the way, the monitors' leader finds in the registry and says again.
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
from kopitiam.contracts.errors import EngineDied, KopitiamError, RunNotFound, StaleEpoch, Unavailable
from kopitiam.contracts.messages import (
    END_TOPICS,
    FINAL_QUEUE,
    PROVISIONAL_QUEUE,
    BarrierForward,
    ForceEnd,
    Message,
    ProvisionalWanted,
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
from kopitiam.pipeline.stream import Stream
from kopitiam.registry.records import Fence
from kopitiam.spark.jobs import job_tag, ping, public_reason
from kopitiam.spark.session import connect_storage
from kopitiam.storage.port import StoragePort
from kopitiam.system.health import Health, Pulse

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_AT_ONCE = 2  # final steps; a small run need not wait for a large one
_FINISHING_SECONDS = 1.0  # what is not done by then is done again by the next life
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PipelineNode:
    """What a pipeline is given by whoever composes it."""

    name: str
    registry: "Registry"
    connect: "Callable[[], Registry]"  # another registry of the same place, in another process
    bus: BusPort
    storage: StoragePort
    hadoop: Mapping[str, str]  # what Spark must know to use the storage
    session: Future[SparkSession]
    scratch: Path
    checkpoint: Path
    bounds: LogBounds
    fence: Fence
    health: Health = field(default_factory=Health)
    answer_seconds: float = 20.0  # Spark's process is taken for dead if it answers nothing for so long


class PipelineWorker:
    def __init__(self, node: PipelineNode) -> None:
        self.node = node
        self.stopping = threading.Event()
        self.ready = Future[None]()  # done when it listens
        self._attempts: Attempts | None = None
        self._pulse: Pulse | None = None
        self._in_hand: set[str] = set()
        self._lock = threading.Lock()
        self._reports = Reports(node.bus, node.registry)
        self._steps = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="final-step")
        self._provisional = ThreadPoolExecutor(1, thread_name_prefix="provisional")

    def work(self) -> None:
        """Until told to stop; `StaleEpoch` if another life of this pipeline has taken over."""
        node = self.node
        if node.session.exception() is not None:
            return  # whoever started it is told
        spark = node.session.result()
        connect_storage(spark, node.storage, node.hadoop)
        work = BatchWork(
            node.name, spark, node.registry, node.storage, node.fence, self.stopping, node.health
        )
        self._attempts = work.attempts
        self._finalizer = Finalizer(work, node.scratch)
        self._compaction = Compaction(work)
        stream = Stream(work, node.connect, node.bounds, node.checkpoint, self._on_committed)
        self._pulse = Pulse(lambda: ping(spark), node.answer_seconds)
        try:
            with self._pulse.beating(), self._listening():
                self.ready.set_result(None)
                stream.run()
        except EngineDied:
            self.blame(DIED)
            raise
        finally:
            self._reports.close()

    def failure_reason(self) -> str | None:
        """Why nobody should rely on this pipeline; None if all is well, as far as one can see."""
        if self._pulse is None or not self._pulse.is_silent:
            return None
        return f"Spark's process has answered nothing for {self.node.answer_seconds:.0f} s"

    def blame(self, reason: str) -> None:
        """Of what is at work, the engine ended badly."""
        if self._attempts is not None:
            self._attempts.blame_all(reason)

    def stop(self) -> None:
        """Running jobs are cancelled; what they were for is handed to the next life."""
        self.stopping.set()
        for steps in (self._steps, self._provisional):
            steps.shutdown(wait=False, cancel_futures=True)
        if self._attempts is not None:
            self._attempts.give_back_all()
        if self.node.session.done() and self.node.session.exception() is None:
            cancelling = threading.Thread(target=self._cancel_jobs, name="cancelling", daemon=True)
            cancelling.start()
            cancelling.join(_FINISHING_SECONDS)  # a process that stands still answers nobody

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
            bus.consume(PROVISIONAL_QUEUE, self._on_wanted),
            bus.listen(self._on_force_end),
        ]
        try:
            yield
        finally:
            for subscription in subscriptions:
                subscription.cancel()

    def _on_committed(self, batch: Batch) -> None:
        """Merging comes before telling: behind the barrier nothing is merged any more."""
        tables: dict[str, set[str]] = defaultdict(set)
        for each in batch.processed:
            tables[each.run].add(each.table)
        for run in batch.runs:
            self._compaction.compact(run)
        for run, seen in tables.items():
            self._reports.progress(run, seen, batch.shards)

    def _on_end(self, message: Message) -> None:
        """The last chunks may have been processed before their END came."""
        if isinstance(message, TableEnd):
            self._reports.progress(message.run, [message.table], self.node.bounds.shards)

    def _on_forward(self, message: Message) -> None:
        if isinstance(message, BarrierForward):
            self._take_up(self._steps, f"final {message.run}", lambda: self._finish(message.run))

    def _on_wanted(self, message: Message) -> None:
        if isinstance(message, ProvisionalWanted):
            step = functools.partial(self._finalizer.provide, message.run)
            self._take_up(self._provisional, f"provisional {message.run}", step)

    def _on_force_end(self, message: Message) -> None:
        if isinstance(message, ForceEnd):
            for run in filter(self._is_given_up, message.runs):
                self.node.session.result().sparkContext.cancelJobsWithTag(job_tag(run))
                try_remove_material(self.node.storage, run)

    def _is_given_up(self, run: str) -> bool:
        """By the registry: a message alone ends no run, and takes no answers away."""
        try:
            return self.node.registry.get_run(run).state in (RunState.FAILED, RunState.ENDED)
        except RunNotFound:
            return False
        except Unavailable as error:  # its batches find out, and a gateway tidies up
            _log.warning("run %s: Force End is not looked up: %s", run, error, extra={"run": run})
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
            self.node.health.on_answered()
            self._reports.answers(run, rows)

    def _take_up(self, steps: ThreadPoolExecutor, what: str, step: Callable[[], None]) -> None:
        """Off the bus's thread, and not twice at once. Final steps never wait for provisional ones."""
        with self._lock:
            if what in self._in_hand or self.stopping.is_set():
                return
            self._in_hand.add(what)
        steps.submit(self._do, what, step)

    def _do(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except (RunNotFound, StaleEpoch) as error:
            _log.info("%s: %s", what, error)
        except KopitiamError as error:
            _log.warning("%s: %s", what, error)
        except Exception as error:
            if self._is_engine_dead():
                _log.warning("%s: ended with Spark's process: %s", what, type(error).__name__)
            elif not self.stopping.is_set():
                _log.exception("%s", what)
        finally:
            with self._lock:
                self._in_hand.discard(what)
