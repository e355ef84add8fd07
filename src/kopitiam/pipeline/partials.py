"""Partial results at rest: what the chunks of a batch leave behind, for each run and kind.

All kinds of a batch are written by one Spark job, in the columns of all kinds together, into a folder for
each run and kind. Partials merge by adding: those of a whole run may be merged in any order and grouping.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.pipeline.stages.maximizers import merge_products, merge_purchases, merge_tpv

LARGE_SALES, PRODUCTS, TPV, PURCHASES = "large_sales", "products", "tpv", "purchases"
COLUMNS: dict[str, tuple[str, ...]] = {  # by kind; what takes longest comes first
    PURCHASES: ("store_id", "user_id", "purchases"),
    PRODUCTS: ("item_id", "month", "quantity", "subtotal"),
    TPV: ("store_id", "half", "amount"),
    LARGE_SALES: ("transaction_id", "final_amount"),
}
_NOT_LONG: dict[str, t.DataType] = {"transaction_id": t.StringType(), "month": t.IntegerType()}
_FOLDERS = ("pipeline", "batch", "run", "kind")
_MERGES: dict[str, Callable[[DataFrame], DataFrame]] = {
    LARGE_SALES: lambda partials: partials,
    PRODUCTS: merge_products,
    TPV: merge_tpv,
    PURCHASES: merge_purchases,
}


def schema(kind: str) -> t.StructType:
    return t.StructType([_field(name) for name in COLUMNS[kind]] + [_text(name) for name in _FOLDERS])


def write(partials: Iterable[tuple[str, DataFrame]], target: str) -> None:
    """One job for all of them, by kind. `target` is a new folder: nobody else writes there.

    Tasks begin in the order of the union: the longest first, or the last one would keep the others waiting.
    """
    longest_first = sorted(partials, key=lambda partial: list(COLUMNS).index(partial[0]))
    every = [frame.withColumn("kind", f.lit(kind)) for kind, frame in longest_first]
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), every)
    whole.write.partitionBy("run", "kind").parquet(target)


def read(spark: SparkSession, home: str, kind: str, files: Sequence[str]) -> DataFrame:
    """Partials of one kind below the folder of all partials, not merged yet: exactly these files."""
    if not files:
        return spark.createDataFrame([], schema(kind)).select(*COLUMNS[kind])
    reader = spark.read.schema(schema(kind)).option("basePath", home)
    return reader.parquet(*files).select(*COLUMNS[kind])


def merged(kind: str, partials: DataFrame) -> DataFrame:
    return partials.transform(_MERGES[kind])


def kind_of(path: str) -> str:
    return path.rpartition("kind=")[2]


def _field(name: str) -> t.StructField:
    return t.StructField(name, _NOT_LONG.get(name, t.LongType()))


def _text(name: str) -> t.StructField:
    return t.StructField(name, t.StringType())
