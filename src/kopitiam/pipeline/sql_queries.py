"""SQL of users over a version of a data set: checked again, run with limits, and kept as one Parquet file.

A message may be forged, repeated or late, so a pipeline trusts only the request in storage, and checks its
text again. A query that has begun is never repeated: it may be what killed an earlier pipeline.
"""

import contextlib
import logging
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.contracts.errors import (
    DataMissing,
    DataSetNotFound,
    KopitiamError,
    QuestionError,
    RunFailed,
    Unavailable,
)
from kopitiam.contracts.messages import SqlRequest
from kopitiam.contracts.sql_queries import BEGIN_SECONDS, QueryBegun, QueryOutcome, QueryRequest, created_at
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.sql_results import read_result, require_plain_columns, result_columns
from kopitiam.pipeline.sql_views import (
    VersionTable,
    require_small_broadcasts,
    session_with,
    tables_of_version,
)
from kopitiam.questions.sql import check_sql
from kopitiam.results.query_files import QueryFolder
from kopitiam.spark.jobs import SPARK_ERRORS, failure_of, job_tag, public_reason, tagged_jobs
from kopitiam.storage.port import Key

SCHEDULER_POOL = "sql"  # has the same share of the cores as the batches and as the answers
_WATCH_SECONDS = 0.5
_LONGEST_REASON = 600
_REFUSALS = (QuestionError, DataMissing, DataSetNotFound, RunFailed)
_log = logging.getLogger(__name__)
# pyspark prints the errors of a query with their Java stack traces; here they are the user's mistakes.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


class _NotWanted(Exception):
    """The client or a drop of the data set has removed the request."""


@dataclass(frozen=True)
class SqlQueries:
    """The queries of one pipeline."""

    work: BatchWork
    scratch: Path

    def answer(self, message: SqlRequest) -> None:
        """Runs a query and stores its outcome, unless it is late, has begun already, or is not wanted.

        Raises Unavailable if the pipeline stops, or the registry or the storage is unavailable.
        """
        folder = QueryFolder(self.work.storage, message.data_set, message.query)
        with self.work.attempts.gate.passing():
            record, now = folder.read(), self.work.registry.now()
            if record is None or record.begun is not None:
                return
            if now - created_at(message.query) > BEGIN_SECONDS:
                _log.info("query %s: too late to begin", message.query)
                return
            fence = self.work.fence
            folder.write_begun(QueryBegun(fence.name, fence.epoch, fence.holder, now))
            with contextlib.suppress(_NotWanted):
                outcome = self._outcome(folder, record.request)
                folder.write_outcome(outcome)
                _log.info("query %s: %s rows in %.1f s", message.query, outcome.rows, outcome.seconds)
            if not folder.is_requested:
                folder.remove()

    def _outcome(self, folder: QueryFolder, request: QueryRequest) -> QueryOutcome:
        """Computes and stores the result. Raises _NotWanted, or Unavailable if the pipeline stops."""
        begun, file = time.monotonic(), f"result-{uuid.uuid4().hex}.parquet"
        try:
            with tempfile.TemporaryDirectory(prefix="sql-", dir=self.scratch) as scratch:
                result = self._run(folder, request, Path(scratch))
                kept = result.slice(0, request.rows)
                folder.write_result(file, kept, Path(scratch))
            seconds, is_cut = time.monotonic() - begun, len(result) > request.rows
            return QueryOutcome(seconds, result_columns(kept.schema), len(kept), is_cut, file)
        except _REFUSALS as error:
            return QueryOutcome(time.monotonic() - begun, error=str(error))

    def _run(self, folder: QueryFolder, request: QueryRequest, scratch: Path) -> pa.Table:
        checked = check_sql(request.sql)
        data_files = self.work.registry.version_files(folder.data_set, request.version)
        if not data_files:
            raise DataSetNotFound(f"version {request.version} does not exist, or is not kept any more")
        tables = tables_of_version(self.work, data_files, checked.tables)
        spark = self.work.spark
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", SCHEDULER_POOL)
        with tagged_jobs(spark, [folder.query]), _watched(spark, folder, request.seconds) as watch:
            try:
                frame = session_with(self.work, tables).sql(checked.text)
                require_plain_columns(frame)
                require_small_broadcasts(self.work, frame, tables)
                return self._written(frame, request.rows, folder.key / "spark", scratch)
            except SPARK_ERRORS as error:
                if self.work.is_closing:
                    raise Unavailable("the pipeline is stopping") from error
                watch.raise_if_cancelled()
                raise _reason(error, request.data, tables) from None

    def _written(self, frame: DataFrame, rows: int, target: Key, scratch: Path) -> pa.Table:
        """Computes up to one row more than `rows`, and returns them."""
        columns = list(frame.schema)
        numbered = frame.toDF(*(f"c{at}" for at in range(len(columns)))).limit(rows + 1)
        # Parquet has no type for a column of nulls.
        as_texts = {
            f"c{at}": f.col(f"c{at}").cast("string")
            for at, column in enumerate(columns)
            if column.dataType == t.NullType()
        }
        space = self.work.storage.workspace(scratch)
        try:
            numbered.withColumns(as_texts).write.parquet(space.url(target))
            files = space.fetch(f"{target}/part-*.parquet", scratch)
            return read_result(columns, files)
        finally:
            with contextlib.suppress(Unavailable):
                space.remove(target)


class _Watch:
    """Why the jobs of a query were cancelled."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.is_done = threading.Event()
        self.is_late = False
        self.is_unwanted = False

    def raise_if_cancelled(self) -> None:
        if self.is_unwanted:
            raise _NotWanted
        if self.is_late:
            raise QuestionError(f"took longer than {self.seconds} s, and was cancelled")


@contextlib.contextmanager
def _watched(spark: SparkSession, folder: QueryFolder, seconds: int) -> Iterator[_Watch]:
    """Cancels the jobs of the query in the block when its time is over, or when nobody wants its result."""
    watch, deadline = _Watch(seconds), time.monotonic() + seconds

    def run() -> None:
        while not watch.is_done.wait(min(_WATCH_SECONDS, max(0.01, deadline - time.monotonic()))):
            watch.is_late = time.monotonic() >= deadline
            with contextlib.suppress(KopitiamError, OSError):  # the next look may succeed
                watch.is_unwanted = not folder.is_requested
            if watch.is_late or watch.is_unwanted:
                break
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have been killed
            # Each stage of an adaptive plan is a job of its own, so one call may miss the next.
            while not watch.is_done.is_set():
                spark.sparkContext.cancelJobsWithTag(job_tag(folder.query))
                watch.is_done.wait(_WATCH_SECONDS)

    watching = threading.Thread(target=run, name="sql-watch", daemon=True)
    watching.start()
    try:
        yield watch
    finally:
        watch.is_done.set()
        watching.join()


def _reason(error: Exception, data: str, tables: Mapping[str, VersionTable]) -> Exception:
    """Unavailable if a disk was full; any other error is the user's, in one line without paths."""
    failure = failure_of(error)
    if isinstance(failure, Unavailable):
        return failure
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        if condition.startswith("UNRESOLVED_COLUMN"):
            return QuestionError(_no_column(error, data, tables))
        return QuestionError(_without_codes(public_reason(error)))
    return QuestionError(public_reason(error)[:_LONGEST_REASON])


def _without_codes(reason: str) -> str:
    """The text of an error of Spark, without its condition and SQLSTATE."""
    text = reason.partition(" SQLSTATE:")[0]
    return (text.partition("] ")[2] or text)[:_LONGEST_REASON]


def _no_column(error: PySparkException, data: str, tables: Mapping[str, VersionTable]) -> str:
    name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
    there = "; ".join(
        f"{table} has {', '.join(column.name for column in view.form.columns)}"
        for table, view in tables.items()
    )
    advice = f"to keep every column, send the files again with: kopi submit DIR --data {data} --columns all"
    return f"there is no column {name[:60]}; {there}; {advice}"
