"""Spark's thread pools: bounded, whatever the number of queries, and never waiting for themselves."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

QUERIES = 24  # more at once than a pool has threads
MOST = 16
POOLS = ("shuffle-exchange", "broadcast-exchange", "ResultQueryStageExecution")


def threads_by_pool(spark: SparkSession) -> Counter[str]:
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    names = [info.getThreadName() for info in beans.dumpAllThreads(False, False) if info is not None]
    return Counter(pool for name in names for pool in POOLS if name.startswith(pool))


def revenue(spark: SparkSession, number: int) -> int:
    """A query with two shuffles and a broadcast join."""
    rows = spark.range(0, 100, 1, 2).withColumn("key", f.col("id") % 7)
    groups = rows.groupBy("key").agg(f.sum(f.col("id") + number).alias("figure"))
    names = f.broadcast(spark.range(0, 7, 1, 1).withColumnRenamed("id", "key"))
    (row,) = groups.join(names, on="key", how="inner").agg(f.sum("figure").alias("total")).collect()
    return int(row.total)


def test_many_queries_at_once_take_a_bounded_number_of_threads(spark: SparkSession) -> None:
    with ThreadPoolExecutor(QUERIES) as threads:
        totals = list(threads.map(lambda number: revenue(spark, number), range(QUERIES)))
    assert totals == [sum(range(100)) + 100 * number for number in range(QUERIES)]
    counts = threads_by_pool(spark)
    assert set(counts) == set(POOLS)
    assert max(counts.values()) <= MOST
