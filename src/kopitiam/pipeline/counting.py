"""Rows of partials, counted from the footers of their files and from what Spark says it wrote.

What is committed, merged and read is counted: output that vanishes, is cut short or lies there twice is
noticed before anything is computed from it.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.errors import PartialsDiffer
from kopitiam.contracts.layout import KEYS
from kopitiam.storage.port import Key, StoragePort

_FOOTERS_AT_ONCE = 8
_PAGE = 20  # executions that are looked through at once, from the latest to the earliest
_DESCRIPTION = "spark.job.description"
_WRITE = "InsertIntoHadoopFsRelationCommand"
_ROWS = "number of output rows"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Footers:
    """The files of a folder of partials, and their rows; a file that cannot be read has none."""

    rows: Mapping[Key, int | None]

    @property
    def total(self) -> int:
        return sum(count or 0 for count in self.rows.values())

    @property
    def unreadable(self) -> int:
        return sum(count is None for count in self.rows.values())


def footers(storage: StoragePort, folder: Key) -> Footers:
    files = storage.find(f"{folder}/part-*")
    return Footers({file: _rows_in(storage, file) for file in files})


def count_rows(storage: StoragePort, folder: Key) -> int:
    """Of what was just written."""
    found = footers(storage, folder)
    if found.unreadable:
        raise PartialsDiffer(f"{found.unreadable} files of new partials cannot be read")
    return found.total


def files_of(storage: StoragePort, partials: Iterable[Partial]) -> dict[str, list[Key]]:
    """The files of each partial, by path, once their rows are those that were committed. `PartialsDiffer`
    with the figures if they are not.

    A partial of no rows was committed by a version that did not count them.
    """
    wanted = list(partials)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as threads:
        found = list(threads.map(lambda each: footers(storage, KEYS.partials / each.path), wanted))
    for partial, there in zip(wanted, found, strict=True):
        if partial.rows and (there.total != partial.rows or there.unreadable):
            unreadable = f", and {there.unreadable} files cannot be read" if there.unreadable else ""
            kind = partial.path.rpartition("kind=")[2]
            raise PartialsDiffer(
                f"partials of {kind} have {there.total} rows, {partial.rows} were committed{unreadable}"
            )
    return {partial.path: list(there.rows) for partial, there in zip(wanted, found, strict=True)}


@contextlib.contextmanager
def described(spark: SparkSession, name: str) -> Iterator[None]:
    """What this thread writes meanwhile is known to Spark by this name."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, name)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # a killed JVM describes nothing
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def written_rows(spark: SparkSession, name: str) -> int | None:
    """The rows that the tasks of the write with this name committed, by Spark's own count.

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
        _log.info("Spark does not say how much it wrote: %s", str(error).partition("\n")[0])
    return None


def _rows_of_write(store: object, execution: int) -> int | None:
    values = store.executionMetrics(execution)  # type: ignore[attr-defined]
    nodes = store.planGraph(execution).allNodes()  # type: ignore[attr-defined]
    for node in map(nodes.apply, range(nodes.size())):
        if _WRITE not in node.name():
            continue
        metrics = node.metrics()
        for metric in map(metrics.apply, range(metrics.size())):
            found = values.get(metric.accumulatorId())
            if metric.name() == _ROWS and found.isDefined():
                return int(found.get().replace(",", ""))
    return None


def _rows_in(storage: StoragePort, file: Key) -> int | None:
    try:
        with storage.open(file) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except (OSError, pa.ArrowException):
        return None
