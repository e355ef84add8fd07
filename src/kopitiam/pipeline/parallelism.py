"""How many tasks a job is cut into where it is cut by hand: as many as work side by side, within reason."""

from pyspark.sql import SparkSession

_MOST_TASKS = 16


def tasks_at_once(spark: SparkSession) -> int:
    return min(spark.sparkContext.defaultParallelism, _MOST_TASKS)
