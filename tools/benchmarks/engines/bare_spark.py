"""Spark alone: a session with default settings and one tiny job.

python bare_spark.py
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation does


def main() -> None:
    spark = SparkSession.builder.master("local[*]").getOrCreate()
    spark.range(1000).groupBy(F.col("id") % 10).count().collect()
    spark.stop()


if __name__ == "__main__":
    main()
