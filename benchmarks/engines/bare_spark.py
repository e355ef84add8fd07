"""What Spark itself costs: a session and one tiny job, nothing else.

python bare_spark.py
"""

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1000).selectExpr("id % 10 AS digit").groupBy("digit").count().collect()
spark.stop()
