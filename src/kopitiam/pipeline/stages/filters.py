"""Row filters. Conditions on time are ranges, so that Parquet statistics skip whole row groups."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.questions import SECONDS_PER_DAY, Questions

Stage = Callable[[DataFrame], DataFrame]


def filter_year(questions: Questions) -> Stage:
    def sales_of_the_years(sales: DataFrame) -> DataFrame:
        begin, end = f.lit(questions.begin), f.lit(questions.end)
        return sales.where((f.col("created_at") >= begin) & (f.col("created_at") < end))

    return sales_of_the_years


def filter_hour(questions: Questions) -> Stage:
    def sales_in_opening_hours(sales: DataFrame) -> DataFrame:
        second_of_day = f.pmod(f.unix_seconds("created_at"), f.lit(SECONDS_PER_DAY))
        return sales.where(second_of_day.between(questions.opening_second, questions.closing_second))

    return sales_in_opening_hours


def filter_amount(questions: Questions) -> Stage:
    def large_sales(sales: DataFrame) -> DataFrame:
        return sales.where(f.col("final_amount") >= f.lit(questions.min_units))

    return large_sales
