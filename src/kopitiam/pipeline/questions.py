"""The four questions as compositions of stages: first partials that add up, then answers from them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.questions import Questions
from kopitiam.pipeline.partials import LARGE_SALES, PRODUCTS, PURCHASES, TPV
from kopitiam.pipeline.stages.aggregators import agg_products, agg_purchases, agg_tpv, run_of
from kopitiam.pipeline.stages.filters import filter_amount, filter_hour, filter_year
from kopitiam.pipeline.stages.joiners import join_items, join_stores_top, join_stores_tpv, join_users
from kopitiam.pipeline.stages.maximizers import max_products, sum_tpv, top_customers


def partials_of_transactions(transactions: DataFrame, questions: Questions) -> dict[str, DataFrame]:
    """By kind: what rows of one run, or of several that they name, leave behind.

    What some rows leave, added up, is what all of them leave.
    """
    of_the_years = transactions.transform(filter_year(questions))
    in_hours = of_the_years.transform(filter_hour(questions))
    large = in_hours.transform(filter_amount(questions))
    return {
        PURCHASES: of_the_years.transform(agg_purchases),
        TPV: in_hours.transform(agg_tpv(questions)),
        LARGE_SALES: large.select(*run_of(large), "transaction_id", "final_amount"),
    }


def partials_of_items(items: DataFrame, questions: Questions) -> dict[str, DataFrame]:
    return {PRODUCTS: items.transform(filter_year(questions)).transform(agg_products(questions))}


def large_sales(partial: DataFrame) -> DataFrame:
    """Q1, sorted into one file by one task: no sampling pass over the input, and the sort may spill."""
    return partial.repartition(1).sortWithinPartitions("transaction_id", "final_amount")


def products_by_month(partial: DataFrame, menu_items: DataFrame) -> DataFrame:
    """Q2, both halves: one row for each month and `kind`, with the figure that won."""
    ranked = partial.transform(max_products).select(
        _month_text(f.col("month")).alias("year_month_created_at"),
        f.inline(
            f.array(
                _winner("sellings_qty", "best_item_id", "sellings_qty"),
                _winner("profit_sum", "richest_item_id", "profit_sum"),
            )
        ),
    )
    return ranked.transform(join_items(menu_items)).select(
        "kind", "year_month_created_at", "item_id", "item_name", "figure", "item_is_matched"
    )


def tpv_by_half_and_store(partial: DataFrame, stores: DataFrame) -> DataFrame:
    """Q3"""
    return (
        partial.transform(sum_tpv)
        .transform(join_stores_tpv(stores))
        .select(
            _half_text(f.col("half")).alias("year_half_created_at"),
            "store_id",
            "store_name",
            "tpv",
            "store_is_matched",
        )
    )


def customers_by_store(partial: DataFrame, questions: Questions, slices: int = 1) -> DataFrame:
    """Q4 before the joins: few rows, whose ids select what is read of the users."""
    return partial.transform(top_customers(questions, slices))


def birthdates_by_store(ranked: DataFrame, stores: DataFrame, users: DataFrame) -> DataFrame:
    """Q4"""
    return (
        ranked.transform(join_stores_top(stores))
        .transform(join_users(users))
        .select(
            "store_id",
            "store_name",
            "rank",
            "user_id",
            "birthdate",
            "purchases",
            "store_is_matched",
            "user_is_matched",
        )
    )


def _winner(kind: str, item_id: str, figure: str) -> Column:
    return f.struct(f.lit(kind).alias("kind"), f.col(item_id).alias("item_id"), f.col(figure).alias("figure"))


def _month_text(month: Column) -> Column:
    return f.format_string("%04d-%02d", f.floor(month / 12), month % 12 + 1)


def _half_text(half: Column) -> Column:
    return f.format_string("%04d-H%d", f.floor(half / 2), half % 2 + 1)
