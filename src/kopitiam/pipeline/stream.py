"""The stream: micro-batches from the chunk log, each committed to the registry exactly once.

One transaction under (query id, batch id) commits the partials, the counters and the new position of every
lane: a batch that Spark replays is recognized by that key. The registry decides. A checkpoint that
contradicts it is deleted, and a new query continues from the positions in the registry.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kopitiam.contracts.batches import Batch
from kopitiam.contracts.errors import (
    EngineDied,
    ForeignCheckpoint,
    KopitiamError,
    RegistryUnavailable,
    StaleEpoch,
    StreamStuck,
    Unavailable,
)
from kopitiam.contracts.layout import KEYS, owner_of
from kopitiam.landing.tidying import PARTIALS_OF_RUNS, remove_partial, try_remove_material
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.source import NAME, Descriptors, LogBounds, chunk_log
from kopitiam.spark.jobs import is_stopped, public_reason
from kopitiam.spark.settings import is_cluster
from kopitiam.storage.port import Key
from kopitiam.system.crash_points import crash_point

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_POLL_SECONDS = 0.2
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.5, 10.0
_MOST_PAUSE_AFTER_FAILURE_SECONDS = 2.0  # `kopi analyze` ends within a minute if all attempts fail
_MOST_FRUITLESS = 5  # failures in a row; by then a run has had its three attempts
_SOUND_SECONDS = 60.0  # a query that ran this long before it failed had started properly
_WAITING = "Waiting for"  # the status of an idle query begins with this
_log = logging.getLogger(__name__)


@dataclass
class Stream:
    """The streaming query of one pipeline, started again after failures."""

    work: BatchWork
    connect: "Callable[[], Registry]"  # opens the registry for Spark's reader, in another process
    bounds: LogBounds
    checkpoint: Path
    on_committed: Callable[[Batch], None]
    _query: StreamingQuery | None = None
    _is_started: threading.Event = field(default_factory=threading.Event)
    _failure: Exception | None = None

    def run(self) -> None:
        """Runs until the pipeline stops. Retries while the registry or the storage is unavailable.

        Raises StaleEpoch if another process has taken over this pipeline, EngineDied if the JVM died, and
        StreamStuck if failures repeat without progress.
        """
        self.sweep()
        pause, fruitless = _FIRST_PAUSE_SECONDS, 0
        while not self.work.stopping.is_set():
            steps, begun = self.work.health.steps, time.monotonic()
            self._run_query()
            failure, self._failure = _cause(self._failure), None
            if isinstance(failure, StaleEpoch):
                raise failure
            if failure is None:
                continue
            if is_stopped(self.work.spark):
                raise EngineDied("Spark's process died; nothing is lost")
            lasted = time.monotonic() - begun
            if self.work.health.steps > steps or lasted > _SOUND_SECONDS:
                pause, fruitless = _FIRST_PAUSE_SECONDS, 0
            if not isinstance(failure, Unavailable):
                fruitless += 1
                # The checkpoint may be the cause, and can be deleted without loss.
                shutil.rmtree(self.checkpoint, ignore_errors=True)
            if fruitless >= _MOST_FRUITLESS:
                _log.error("stream: %s; it failed %d times in a row", failure, fruitless)
                raise StreamStuck(
                    f"the stream failed {fruitless} times in a row; the last time: {public_reason(failure)}"
                )
            if isinstance(failure, ForeignCheckpoint):
                _log.warning("stream: %s; starting again from the positions in the registry", failure)
                continue
            _log.warning("stream: %s; trying again", str(failure).partition("\n")[0])
            self.work.health.failure = f"the pipeline waits to try again: {public_reason(failure)}"
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            if not isinstance(failure, Unavailable):
                pause = min(pause, _MOST_PAUSE_AFTER_FAILURE_SECONDS)
            self.work.stopping.wait(pause)

    def run_available(self) -> None:
        """Processes the current content of the log, and raises the first failure."""
        self._run_query(available_now=True)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def sweep(self) -> None:
        """Removes orphaned partials, of batches and merges that crashed before their commit.

        Partials of runs and data files that this registry does not know are left to the gateway's janitor.
        """
        storage, folder = self.work.storage, KEYS.partials_of(self.work.pipeline)
        known = self.work.registry.partial_paths(f"{folder.name}/")
        in_use = {path.split("/")[1] for path in known}
        for batch in storage.find(f"{folder}/batch=*"):
            if batch.name not in in_use and self._is_ours(batch):
                storage.remove(batch)
        for partial in storage.find(f"{folder}/batch=*/run=*/kind=*"):
            is_listed = str(partial.relative_to(KEYS.partials)) in known
            if not is_listed and self.work.registry.is_known(owner_of(partial)):
                remove_partial(storage, partial)

    def _is_ours(self, batch: Key) -> bool:
        folders = [key for below in PARTIALS_OF_RUNS for key in self.work.storage.find(f"{batch}/{below}")]
        runs = {key.name.removeprefix("run=") for key in folders}
        is_empty = (
            not runs and not self.work.storage.is_shared
        )  # a shared storage may have another pipeline of this name
        return is_empty or (bool(runs) and all(map(self.work.registry.is_known, runs)))

    def _run_query(self, available_now: bool = False) -> None:
        self._is_started.clear()
        try:
            self._query = self._start(available_now)
            self._is_started.set()
            while not self.work.stopping.is_set() and self._query.isActive:
                self._query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
                self._clear_failure(self._query)
            if self._query.isActive:
                self._query.stop()
            elif (error := self._query.exception()) and self._failure is None:
                self._failure = error
        except (PySparkException, Py4JError, OSError) as error:
            if not self.work.stopping.is_set() and self._failure is None:
                self._failure = error

    def _clear_failure(self, query: StreamingQuery) -> None:
        """A query that is idle again has recovered; so has one that commits a batch."""
        health = self.work.health
        if health.failure is not None and str(query.status["message"]).startswith(_WAITING):
            health.failure = None

    def _start(self, available_now: bool) -> StreamingQuery:
        spark = self.work.spark
        is_on_cluster = is_cluster(spark.sparkContext.master or "")
        spark.dataSource.register(chunk_log(self.connect, self.bounds, is_on_cluster))
        writer = spark.readStream.format(NAME).load().writeStream
        if available_now:
            writer = writer.trigger(availableNow=True)
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        return (
            writer.queryName(self.work.pipeline)
            .option("checkpointLocation", f"file://{self.checkpoint}")  # whatever Hadoop's default is
            .foreachBatch(self._process_batch)
            .start()
        )

    def _process_batch(self, batch: DataFrame, number: int) -> None:
        self._is_started.wait()
        assert self._query is not None
        try:
            if number:
                crash_point("batch.checkpointed")
            crash_point("batch.begun")
            watch = Stopwatch()
            with watch.lap("read"):
                descriptors = Descriptors.of_rows(batch.collect())
            crash_point("batch.read")
            self._commit(self._processed(str(self._query.id), number, descriptors, watch), watch)
            self._log_batch(number, descriptors, watch)
        except (KopitiamError, OSError) as error:
            self._failure = error
            raise
        crash_point("batch.committed")

    def _processed(self, query: str, number: int, descriptors: Descriptors, watch: Stopwatch) -> Batch:
        """The batch with its results, or without any if the registry has it already: a replay. Raises
        ForeignCheckpoint if its spans do not continue the positions in the registry."""
        positions = self.work.registry.positions(descriptors.spans)
        if all(positions[lane] == upto for lane, (_, upto) in descriptors.spans.items()):
            return Batch(query, number, descriptors.spans, (), ())
        for lane, (after, upto) in descriptors.spans.items():
            if positions[lane] != after:
                where = f"goes from {after} to {upto} in lane {lane}"
                raise ForeignCheckpoint(f"batch {number} {where}, the registry is at {positions[lane]}")
        return self.work.process(query, number, descriptors, watch)

    def _commit(self, batch: Batch, watch: Stopwatch) -> None:
        with self.work.attempts.committing(), watch.lap("commit"):
            committed = self.work.registry.commit_batch(batch, self.work.fence)
        crash_point("batch.unreported")
        self.work.health.record_progress()
        for run in committed.ignored:
            of_run = [partial for partial in batch.partials if partial.run == run]
            try_remove_material(self.work.storage, run, of_run)
        if committed.outcome == "committed":
            with watch.lap("merge and report"):
                self.on_committed(batch)

    def _log_batch(self, number: int, descriptors: Descriptors, watch: Stopwatch) -> None:
        """Logs the seconds of this batch, and Spark's own figures of the batch before."""
        if not _log.isEnabledFor(logging.INFO):
            return
        before = self._query.lastProgress if self._query else None
        figures = {"chunks": len(descriptors.chunks), "rows": sum(chunk.rows for chunk in descriptors.chunks)}
        spark = {"batch": before.batchId, "milliseconds": dict(before.durationMs)} if before else None
        fields = {"batch": number, **figures, "seconds": watch.seconds, "spark_before": spark}
        _log.info("batch %d committed", number, extra=fields)


def _cause(failure: Exception | None) -> Exception | None:
    """Spark's reader of the chunk log is another process: only the text of Spark's error says that the
    registry was unavailable there."""
    is_spark = isinstance(failure, (PySparkException, Py4JError))
    if is_spark and RegistryUnavailable.__name__ in str(failure):
        return RegistryUnavailable("registry: Spark's reader of the chunk log cannot reach it")
    return failure
