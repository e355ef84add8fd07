"""Jobs on a live session: tags to cancel them by, rows that they wrote, and what their failures mean."""

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed, Unavailable

SPARK_ERRORS = (PySparkException, Py4JJavaError)
_PATH = re.compile(r"(?:\b\w+:)?/{1,3}(?:[^\s:;,'\"\]\)/]+/)+[^\s:;,'\"\]\)]*")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PAGE = 20  # executions in one page of Spark's list, read from the latest to the earliest
_DESCRIPTION = "spark.job.description"
_WRITE = "InsertIntoHadoopFsRelationCommand"
_ROWS = "number of output rows"
_log = logging.getLogger(__name__)


def failure_of(error: Exception) -> RunFailed | Unavailable:
    """RunFailed, or Unavailable if a disk was full. Only the error says which: the disk may have room again,
    since incomplete files were removed."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"  # the cause may be far below the first line
    for reason in _NO_ROOM:
        if reason in text:
            return Unavailable(f"Spark failed: {reason}")
    return RunFailed(f"Spark failed: {first_line(error)}")


def first_line(error: Exception) -> str:
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(message).strip().partition("\n")[0]


def public_reason(error: Exception) -> str:
    """The first line of the error, without paths of the server."""
    return _PATH.sub("…", first_line(error))


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session or its JVM has ended. Then a failure says nothing about the data."""
    context = spark.sparkContext
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def ping(spark: SparkSession) -> None:
    """Returns when the JVM answers a trivial call."""
    context = spark.sparkContext._jsc
    if context is not None:
        context.sc().isStopped()


def size_shuffles(spark: SparkSession) -> None:
    """Gives shuffles two partitions for each core that Spark has now, since executors come and go. Spark
    merges small ones. A number in the settings stays."""
    context = spark.sparkContext
    assert context._jsc is not None
    if not context._jsc.sc().conf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, str(2 * context.defaultParallelism))


@contextlib.contextmanager
def tagged_jobs(spark: SparkSession, runs: Iterable[str]) -> Iterator[None]:
    """Jobs that this thread starts in the block are cancelled by the `job_tag` of any of these runs."""
    tags = [job_tag(run) for run in runs]
    for tag in tags:
        spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have been killed
            for tag in tags:
                spark.sparkContext.removeJobTag(tag)


def job_tag(run: str) -> str:
    return f"run-{run}"


def cancel_jobs(spark: SparkSession, run: str) -> None:
    """Cancels the jobs of a run, in all threads that started one within `tagged_jobs`."""
    spark.sparkContext.cancelJobsWithTag(job_tag(run))


@contextlib.contextmanager
def described_jobs(spark: SparkSession, name: str) -> Iterator[None]:
    """Jobs that this thread starts in the block have this description, for `written_rows`."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, name)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have been killed
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def written_rows(spark: SparkSession, name: str) -> int | None:
    """The rows that the tasks of the write with this description committed, by Spark's own metrics.

    None if Spark no longer keeps the metrics of this write. Executions are listed by their start: beside a
    long write, the questions of other runs may have started hundreds of later ones.
    """
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        store = spark._jsparkSession.sharedState().statusStore()
        end = store.executionsCount()
        while end > 0:
            begin = max(0, end - _PAGE)
            page = store.executionsList(begin, end - begin)
            for index in reversed(range(page.size())):
                execution = page.apply(index)
                if execution.description() == name:
                    return _rows_of_write(store, execution.executionId())
            end = begin
    except Py4JError as error:
        _log.info("Spark's metrics of a write cannot be read: %s", str(error).partition("\n")[0])
    return None


def _rows_of_write(store: object, execution: int) -> int | None:
    values = store.executionMetrics(execution)  # type: ignore[attr-defined]
    nodes = store.planGraph(execution).allNodes()  # type: ignore[attr-defined]
    for node in map(nodes.apply, range(nodes.size())):
        if _WRITE not in node.name():
            continue
        metrics = node.metrics()
        for metric in map(metrics.apply, range(metrics.size())):
            value = values.get(metric.accumulatorId())
            if metric.name() == _ROWS and value.isDefined():
                return int(value.get().replace(",", ""))
    return None
