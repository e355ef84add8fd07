"""Partial results at rest: what the chunks of a batch leave behind, for each run and plan.

All partials of a batch are written by one Spark job into a folder for each run and kind, which is the name of
a plan. Partials merge by adding: those of a whole run may be merged in any order and grouping. Beside them
are the counts of rows that no partial has.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.errors import PartialsDiffer
from kopitiam.contracts.layout import KEYS
from kopitiam.pipeline.compiler.partials import SHARD, PartialLayout
from kopitiam.questions.plans import PartialPlan
from kopitiam.storage.port import Key, StoragePort

_COUNTS = "counts-"  # no question has a name like that
_FOLDERS = tuple(t.StructField(name, t.StringType()) for name in ("pipeline", "batch", "run", "kind"))


def write(frames: Sequence[tuple[str, DataFrame]], target: str) -> None:
    """One job for all frames, by kind. `target` is a new folder: nobody else writes there.

    Tasks begin in the order of the frames.
    """
    _whole(frames).write.partitionBy("run", "kind").parquet(target)


def count(frames: Sequence[tuple[str, DataFrame]]) -> int:
    """The rows that `write` writes of these frames."""
    return _whole(frames).count()


def _whole(frames: Sequence[tuple[str, DataFrame]]) -> DataFrame:
    every = [frame.withColumn("kind", f.lit(kind)) for kind, frame in frames]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), every)


def read(spark: SparkSession, home: str, plan: PartialPlan, files: Sequence[str]) -> DataFrame:
    """Partials of one plan below the folder of all partials, not merged yet: exactly these files."""
    columns = PartialLayout(plan).schema
    if not files:
        return spark.createDataFrame([], columns)
    schema = t.StructType([*columns.fields, t.StructField(SHARD, t.IntegerType()), *_FOLDERS])
    return spark.read.schema(schema).option("basePath", home).parquet(*files).select(*columns.names)


def counts_kind(fact: str) -> str:
    """The kind of the counts of rows of a fact."""
    return f"{_COUNTS}{fact}"


def counted_fact(kind: str) -> str | None:
    """The fact whose rows are counted there; None for a partial."""
    return kind.removeprefix(_COUNTS) if kind.startswith(_COUNTS) else None


def kind_of(path: str) -> str:
    return path.rpartition("kind=")[2]


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


def _rows_in(storage: StoragePort, file: Key) -> int | None:
    try:
        with storage.open(file) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except (OSError, pa.ArrowException):
        return None
