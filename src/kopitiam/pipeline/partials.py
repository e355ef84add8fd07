"""Partial results at rest: what the chunks of a batch leave behind, for each run and plan.

All partials of a batch are written by one Spark job into a folder for each run and kind, which is the name of
a plan. Partials merge by adding: those of a whole run may be merged in any order and grouping. Beside them
are the counts of rows that no partial has.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.pipeline.compiler.partials import SHARD, PartialLayout
from kopitiam.questions.plans import PartialPlan

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
