"""Names and birthdates for the ranked ids. An id that its table lacks stays, in place of the name.

Each output ends in the columns of its answer. Where a table lists an id twice, the smallest value counts.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

Stage = Callable[[DataFrame], DataFrame]


def join_items(menu_items: DataFrame) -> Stage:
    """month, item_id, … → with item_name"""
    return _with_name(menu_items, "item_id", "item_name", "item_is_matched")


def join_stores_tpv(stores: DataFrame) -> Stage:
    """store, half-year → with store_name"""
    return _with_name(stores, "store_id", "store_name", "store_is_matched")


def join_stores_top(stores: DataFrame) -> Stage:
    """store, rank, customer → with store_name"""
    return _with_name(stores, "store_id", "store_name", "store_is_matched")


def join_users(users: DataFrame) -> Stage:
    """store, rank, customer → with the customer's birthdate; empty for a customer that nobody knows"""

    def with_birthdate(ranked: DataFrame) -> DataFrame:
        known = users.groupBy("user_id").agg(f.min("birthdate").alias("birthdate"))
        return ranked.join(
            f.broadcast(known.withColumn("user_is_matched", f.lit(True))), on="user_id", how="left"
        ).withColumn("user_is_matched", _is_matched("user_is_matched"))

    return with_birthdate


def _with_name(names: DataFrame, key: str, name: str, flag: str) -> Stage:
    def named(ranked: DataFrame) -> DataFrame:
        known = names.groupBy(key).agg(f.min(name).alias(name))
        return (
            ranked.join(f.broadcast(known), on=key, how="left")
            .withColumn(flag, f.col(name).isNotNull())
            .withColumn(name, f.coalesce(f.col(name), f.col(key).cast("string")))
        )

    return named


def _is_matched(flag: str) -> Column:
    return f.coalesce(f.col(flag), f.lit(False))
