"""Partials as files: writing, reading and counting them.

One Spark job writes all partials of a batch, into a folder for each run and kind, which is the name of a
plan. Partials merge by adding: those of a whole run may be merged in any order and grouping. The same
job writes counts of rows that no partial counts.

Rows are counted from the footers of the files when partials are committed, merged and read. Files that
vanish, are truncated or exist twice are thus noticed before anything is computed from them.
"""

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
from kopitiam.landing.chunks import bounds_of
from kopitiam.pipeline.compiler.bounds import Interval, joined
from kopitiam.pipeline.compiler.partials import SHARD, PartialLayout
from kopitiam.questions.plans import PartialPlan
from kopitiam.storage.port import Key, StoragePort

_FOOTERS_AT_ONCE = 8
_COUNTS = "counts-"  # no question can have a name with this prefix
_FOLDERS = tuple(t.StructField(name, t.StringType()) for name in ("pipeline", "batch", "run", "kind"))


def write(frames: Sequence[tuple[str, DataFrame]], target: str) -> None:
    """Writes all frames, by kind, in one job. `target` is a new folder that only this job writes to.

    Tasks start in the order of the frames.
    """
    union(frames).write.partitionBy("run", "kind").parquet(target)


def count(frames: Sequence[tuple[str, DataFrame]]) -> int:
    """The number of rows that `write` writes of these frames."""
    return union(frames).count()


def union(frames: Sequence[tuple[str, DataFrame]]) -> DataFrame:
    """All rows of the frames, with their kinds."""
    named = [frame.withColumn("kind", f.lit(kind)) for kind, frame in frames]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), named)


def read(spark: SparkSession, home: str, plan: PartialPlan, files: Sequence[str]) -> DataFrame:
    """The partials of one plan in exactly these files, not merged yet. `home` is the folder of all
    partials."""
    columns = PartialLayout(plan).schema
    if not files:
        return spark.createDataFrame([], columns)
    schema = t.StructType([*columns.fields, t.StructField(SHARD, t.IntegerType()), *_FOLDERS])
    return spark.read.schema(schema).option("basePath", home).parquet(*files).select(*columns.names)


def counts_kind(fact: str) -> str:
    """The kind under which rows of this fact are counted."""
    return f"{_COUNTS}{fact}"


def counted_fact(kind: str) -> str | None:
    """The fact whose rows are counted under this kind; None if the kind is that of a partial."""
    return kind.removeprefix(_COUNTS) if kind.startswith(_COUNTS) else None


@dataclass(frozen=True)
class Footer:
    """The rows of a file, and the bounds of its columns of whole numbers, as far as it has statistics."""

    rows: int
    bounds: Mapping[str, Interval]


@dataclass(frozen=True)
class Footers:
    """The files in a folder of partials; None for a file that cannot be read."""

    by_file: Mapping[Key, Footer | None]

    @property
    def files(self) -> list[Key]:
        return list(self.by_file)

    @property
    def total(self) -> int:
        return sum(footer.rows for footer in self.by_file.values() if footer)

    @property
    def unreadable(self) -> int:
        return sum(footer is None for footer in self.by_file.values())

    @property
    def bounds(self) -> dict[str, Interval]:
        return joined([footer.bounds for footer in self.by_file.values() if footer and footer.rows])


def footers(storage: StoragePort, folder: Key) -> Footers:
    return Footers({file: _footer(storage, file) for file in storage.find(f"{folder}/part-*")})


def count_rows(storage: StoragePort, folder: Key) -> int:
    """The rows of files that were just written. Raises PartialsDiffer if one cannot be read."""
    written = footers(storage, folder)
    if written.unreadable:
        raise PartialsDiffer(f"{written.unreadable} files of new partials cannot be read")
    return written.total


def stored_footers(storage: StoragePort, partials: Iterable[Partial]) -> dict[str, Footers]:
    """The files of each partial, by path. Raises PartialsDiffer unless they have the rows that were
    committed.

    A partial with 0 rows was committed by a version that did not count them.
    """
    committed = list(partials)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as threads:
        folders = [KEYS.partials / partial.path for partial in committed]
        stored = list(threads.map(lambda folder: footers(storage, folder), folders))
    for partial, files in zip(committed, stored, strict=True):
        if partial.rows and (files.total != partial.rows or files.unreadable):
            unreadable = f", and {files.unreadable} files cannot be read" if files.unreadable else ""
            raise PartialsDiffer(
                f"partials of {partial.kind} have {files.total} rows, "
                f"{partial.rows} were committed{unreadable}"
            )
    return {partial.path: files for partial, files in zip(committed, stored, strict=True)}


def _footer(storage: StoragePort, file: Key) -> Footer | None:
    try:
        with storage.open(file) as opened:
            metadata = pq.read_metadata(opened)
    except (OSError, pa.ArrowException):
        return None
    return Footer(int(metadata.num_rows), bounds_of(metadata))
