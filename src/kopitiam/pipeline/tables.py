"""The tables at rest as DataFrames, with declared schemas; each row knows its run from its folder."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from kopitiam.contracts.tables import Kind, Table

_TYPES: dict[Kind, t.DataType] = {
    Kind.TEXT: t.StringType(),
    Kind.ID: t.LongType(),
    Kind.COUNT: t.LongType(),
    Kind.MONEY: t.LongType(),
    Kind.INSTANT: t.TimestampType(),
    Kind.DATE: t.DateType(),
    Kind.BOOLEAN: t.BooleanType(),
}
# Declared, since Spark would infer a number from a run id that looks like one.
_FOLDERS = (
    t.StructField("table", t.StringType()),
    t.StructField("shard", t.IntegerType()),
    t.StructField("run", t.StringType()),
)


def spark_schema(table: Table) -> t.StructType:
    columns = [t.StructField(c.name, _TYPES[c.kind], c.is_optional) for c in table.columns]
    return t.StructType([*columns, *_FOLDERS])


def read_table(spark: SparkSession, landing: str, table: Table, files: Sequence[str]) -> DataFrame:
    """The table in exactly these Parquet files: other files beside them were never acknowledged."""
    schema = spark_schema(table)
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", landing).parquet(*files)
