"""Partial sums of any number of runs. What chunks of one run give can be added up, in any order.

Periods are counted since year 0: an integer groups faster than a text. For the same reason rows need not
name their run if all are of the same.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.questions import Questions

Stage = Callable[[DataFrame], DataFrame]
_MONTHS = 12
_MONTHS_PER_HALF = 6
_MOST_SEARCHED = 60  # beyond that, the code of a search grows too large for Java's compiler


def agg_products(questions: Questions) -> Stage:
    """(run, item, month) → quantity, subtotal; of sales of the years only"""

    def sales_by_item_month(items: DataFrame) -> DataFrame:
        month = _period(questions, 1).cast("int").alias("month")
        return items.groupBy(*run_of(items), "item_id", month).agg(
            f.sum("quantity").alias("quantity"), f.sum("subtotal").alias("subtotal")
        )

    return sales_by_item_month


def agg_tpv(questions: Questions) -> Stage:
    """(run, store, half-year) → amount; of sales of the years only"""

    def amounts_by_store_half(transactions: DataFrame) -> DataFrame:
        half = _period(questions, _MONTHS_PER_HALF).cast("long").alias("half")
        return transactions.groupBy(*run_of(transactions), "store_id", half).agg(
            f.sum("final_amount").alias("amount")
        )

    return amounts_by_store_half


def agg_purchases(transactions: DataFrame) -> DataFrame:
    """(run, store, user) → purchases; anonymous purchases are nobody's"""
    known = transactions.where(f.col("user_id").isNotNull())
    return known.groupBy(*run_of(known), "store_id", "user_id").agg(f.count(f.lit(1)).alias("purchases"))


def run_of(rows: DataFrame) -> tuple[str, ...]:
    """The column that names it, if there is one."""
    return tuple(name for name in rows.columns if name == "run")


def _period(questions: Questions, months: int) -> Column:
    """Of so many months each. A search among few bounds is a third quicker than the calendar."""
    first, end = (year * _MONTHS // months for year in (questions.first_year, questions.last_year + 1))
    if end - first > _MOST_SEARCHED:
        return f.floor((f.year("created_at") * _MONTHS + f.month("created_at") - 1) / months)
    return f.expr(_search(first, end, months))


def _search(first: int, end: int, months: int) -> str:
    """As SQL, since every call of a function would be one more talk with the JVM."""
    if end - first == 1:
        return str(first)
    middle = (first + end) // 2
    year, month = divmod(middle * months, _MONTHS)
    earlier, later = _search(first, middle, months), _search(middle, end, months)
    return f"if(created_at < timestamp'{year:04}-{month + 1:02}-01', {earlier}, {later})"
