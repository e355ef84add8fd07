"""Partials of any number of chunks and shards, merged by adding; then, and only then, ranked."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.questions import Questions

Stage = Callable[[DataFrame], DataFrame]


def merge_products(partials: DataFrame) -> DataFrame:
    return partials.groupBy("item_id", "month").agg(
        f.sum("quantity").alias("quantity"), f.sum("subtotal").alias("subtotal")
    )


def merge_tpv(partials: DataFrame) -> DataFrame:
    return partials.groupBy("store_id", "half").agg(f.sum("amount").alias("amount"))


def merge_purchases(partials: DataFrame) -> DataFrame:
    return partials.groupBy("store_id", "user_id").agg(f.sum("purchases").alias("purchases"))


def max_products(partials: DataFrame) -> DataFrame:
    """month → the item sold most and the item that earned most; of equals the lowest item_id"""
    first_of_equals = -f.col("item_id")
    return (
        partials.transform(merge_products)
        .groupBy("month")
        .agg(
            f.max(f.struct("quantity", first_of_equals.alias("tie"))).alias("best"),
            f.max(f.struct("subtotal", first_of_equals.alias("tie"))).alias("richest"),
        )
        .select(
            "month",
            (-f.col("best.tie")).alias("best_item_id"),
            f.col("best.quantity").alias("sellings_qty"),
            (-f.col("richest.tie")).alias("richest_item_id"),
            f.col("richest.subtotal").alias("profit_sum"),
        )
    )


def sum_tpv(partials: DataFrame) -> DataFrame:
    """(store, half-year) → total amount"""
    return partials.transform(merge_tpv).withColumnRenamed("amount", "tpv")


def top_customers(questions: Questions, slices: int = 1) -> Stage:
    """The customers are merged in slices, by a task each: to read a slice out of all partials is less work
    than to shuffle them, since hardly two of millions are of the same customer."""

    def merged(partials: DataFrame) -> DataFrame:
        of_slice = f.pmod("user_id", f.lit(slices))
        parts = [partials.where(of_slice == number).coalesce(1) for number in range(slices)]
        return reduce(DataFrame.union, [part.transform(merge_purchases) for part in parts])

    def customers_by_rank(partials: DataFrame) -> DataFrame:
        """store → its customers with most purchases; of equals the lowest user_id"""
        order = f.struct("purchases", (-f.col("user_id")).alias("tie"))
        return (
            partials.transform(merged)
            .groupBy("store_id")
            .agg(f.max_by(order, order, questions.top).alias("best"))
            .select("store_id", f.posexplode("best").alias("rank", "customer"))
            .select(
                "store_id",
                (f.col("rank") + 1).alias("rank"),
                (-f.col("customer.tie")).alias("user_id"),
                f.col("customer.purchases").alias("purchases"),
            )
        )

    return customers_by_rank
