"""Partial sums of any number of runs. What chunks of one run give can be added up, in any order."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f


def agg_products(items: DataFrame) -> DataFrame:
    """(run, item, month) → quantity, subtotal"""
    return items.groupBy("run", "item_id", _month_number().alias("month")).agg(
        f.sum("quantity").alias("quantity"), f.sum("subtotal").alias("subtotal")
    )


def agg_tpv(transactions: DataFrame) -> DataFrame:
    """(run, store, half-year) → amount"""
    half = f.floor(_month_number() / 6).alias("half")
    return transactions.groupBy("run", "store_id", half).agg(f.sum("final_amount").alias("amount"))


def agg_purchases(transactions: DataFrame) -> DataFrame:
    """(run, store, user) → purchases; anonymous purchases are nobody's"""
    known = transactions.where(f.col("user_id").isNotNull())
    return known.groupBy("run", "store_id", "user_id").agg(f.count(f.lit(1)).alias("purchases"))


def _month_number() -> Column:
    """Months since year 0: an integer groups faster than a text."""
    return (f.year("created_at") * 12 + f.month("created_at") - 1).cast("int")
