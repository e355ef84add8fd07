"""The tables at rest as DataFrames, with declared schemas."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from kopitiam.contracts.tables import TABLES, Kind, Table

_TYPES: dict[Kind, t.DataType] = {
    Kind.TEXT: t.StringType(),
    Kind.ID: t.LongType(),
    Kind.COUNT: t.LongType(),
    Kind.MONEY: t.LongType(),
    Kind.INSTANT: t.TimestampType(),
    Kind.DATE: t.DateType(),
}


def spark_schema(table: Table) -> t.StructType:
    return t.StructType([t.StructField(c.name, _TYPES[c.kind], c.is_optional) for c in table.columns])


def read_table(spark: SparkSession, name: str, files: list[Path]) -> DataFrame:
    """The table in exactly these Parquet files: what else lies beside them was never acknowledged."""
    schema = spark_schema(TABLES[name])
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(str, files))
