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


def read_table(spark: SparkSession, name: str, folders: list[Path]) -> DataFrame:
    """The Parquet files of the table in these folders; without any, a table without rows."""
    schema = spark_schema(TABLES[name])
    there = [str(folder) for folder in folders if folder.is_dir()]
    if not there:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*there)
