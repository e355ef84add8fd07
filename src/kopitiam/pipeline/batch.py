"""All answers of one landed data set in one go: the actions that the questions come down to."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.errors import RunFailed
from kopitiam.contracts.questions import Questions
from kopitiam.pipeline import questions as asked
from kopitiam.pipeline.tables import read_table
from kopitiam.results.answers import RawAnswers

STEPS = ("Q1 large sales", "Q2 products", "Q3 payment value", "Q4 customers")


def answer(
    spark: SparkSession,
    files: dict[str, list[Path]],
    questions: Questions,
    scratch: Path,
    on_step: Callable[[str], None] = lambda _: None,
) -> RawAnswers:
    """`files` are each table's chunks; `scratch` takes those of Q1."""
    try:
        tables = {name: read_table(spark, name, chunks) for name, chunks in files.items()}
        partials = asked.partials(tables["transactions"], tables["transaction_items"], questions)
        on_step(STEPS[0])
        large_sales = _write_sorted(partials.large_sales, scratch / "large_sales")
        on_step(STEPS[1])
        products = asked.products_by_month(partials.products, tables["menu_items"]).toArrow()
        on_step(STEPS[2])
        tpv = asked.tpv_by_half_and_store(partials.tpv, tables["stores"]).toArrow()
        on_step(STEPS[3])
        customers = _customers(spark, partials.purchases, tables, questions)
    except (PySparkException, Py4JJavaError) as error:
        raise RunFailed(f"Spark failed: {_why(error)}") from error
    return RawAnswers(large_sales, products, tpv, customers)


def _why(error: PySparkException | Py4JJavaError) -> str:
    """Its first line: what follows is for those who read the log."""
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(message).strip().partition("\n")[0]


def _write_sorted(large_sales: DataFrame, target: Path) -> tuple[Path, ...]:
    asked.large_sales(large_sales).write.parquet(str(target))
    return tuple(sorted(target.glob("part-*.parquet")))


def _customers(
    spark: SparkSession, purchases: DataFrame, tables: dict[str, DataFrame], questions: Questions
) -> pa.Table:
    """Ranks first, so that the few wanted ids reach down into the users' Parquet files."""
    ranked = asked.customers_by_store(purchases, questions).toArrow()
    wanted = ranked["user_id"].unique().to_pylist()
    users = tables["users"].where(f.col("user_id").isin(wanted))
    return asked.birthdates_by_store(spark.createDataFrame(ranked), tables["stores"], users).toArrow()
