"""The five answers by plain PySpark: the CSVs read with declared schemas, cached once, money in DecimalType.

python pyspark_answers.py DATA OUT
"""

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation does

# Spark adds decimals of up to eight digits as longs; FAILFAST refuses an amount that needs more.
MONEY = "DECIMAL(8, 4)"
QUOTE = '"'  # Spark would take a backslash; a quote within quotes is doubled everywhere else
SCHEMAS = {
    "transactions": (
        "transaction_id STRING, store_id INT, payment_method_id STRING, voucher_id STRING, user_id DOUBLE, "
        f"original_amount STRING, discount_applied STRING, final_amount {MONEY}, created_at TIMESTAMP_NTZ"
    ),
    "transaction_items": (
        f"transaction_id STRING, item_id INT, quantity INT, unit_price STRING, subtotal {MONEY}, "
        "created_at TIMESTAMP_NTZ"
    ),
    "users": "user_id BIGINT, gender STRING, birthdate STRING, registered_at STRING",
    "stores": (
        "store_id INT, store_name STRING, street STRING, postal_code STRING, city STRING, state STRING, "
        "latitude STRING, longitude STRING"
    ),
    "menu_items": (
        "item_id INT, item_name STRING, category STRING, price STRING, is_seasonal STRING, "
        "available_from STRING, available_to STRING"
    ),
}


def open_session() -> SparkSession:
    return (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        .getOrCreate()
    )


def read(spark: SparkSession, data: Path, table: str) -> DataFrame:
    files = [str(file) for file in sorted(data.glob(f"*{table}/{table}*.csv"))]
    return spark.read.schema(SCHEMAS[table]).options(header=True, escape=QUOTE, mode="FAILFAST").csv(files)


def in_years(rows: DataFrame) -> DataFrame:
    return rows.where("created_at >= TIMESTAMP_NTZ '2024-01-01' AND created_at < TIMESTAMP_NTZ '2026-01-01'")


def purchases(transactions: DataFrame) -> DataFrame:
    """What questions 1, 3 and 4 share; only large purchases keep their id, which saves most of the cache."""
    second_of_day = F.expr("hour(created_at) * 3600 + minute(created_at) * 60 + second(created_at)")
    is_large = F.col("in_opening_hours") & (F.col("final_amount") >= 75)
    return (
        in_years(transactions)
        .withColumn("in_opening_hours", second_of_day.between(6 * 3600, 23 * 3600))
        .select(
            "store_id",
            F.col("user_id").cast("bigint").alias("user_id"),
            "final_amount",
            "in_opening_hours",
            (F.year("created_at") * 2 + (F.month("created_at") > 6).cast("int")).alias("half"),
            F.when(is_large, F.col("transaction_id")).alias("large_transaction_id"),
        )
    )


def amount_text(name: str) -> Column:
    """A decimal prints all four decimals; the reference form keeps the first and no zeros past it."""
    return F.regexp_replace(F.col(name).cast("string"), "0{1,3}$", "").alias(name)


def name_or_id(name: str, key: str) -> Column:
    return F.coalesce(F.col(name), F.col(key).cast("string")).alias(name)


def large_purchases(bought: DataFrame) -> DataFrame:
    return (
        bought.where("large_transaction_id IS NOT NULL")
        .orderBy("large_transaction_id", "final_amount")
        .select(F.col("large_transaction_id").alias("transaction_id"), amount_text("final_amount"))
    )


def monthly_sales(items: DataFrame) -> DataFrame:
    month = F.date_trunc("month", "created_at").alias("month")
    return (
        in_years(items)
        .groupBy(month, "item_id")
        .agg(F.sum("quantity").alias("sellings_qty"), F.sum("subtotal").alias("profit_sum"))
    )


def best_products(sales: DataFrame, menu: DataFrame, measure: str, shown: Column) -> DataFrame:
    by_measure = Window.partitionBy("month").orderBy(F.desc(measure), "item_id")
    return (
        sales.withColumn("rank", F.row_number().over(by_measure))
        .where("rank = 1")
        .join(F.broadcast(menu), "item_id", "left")
        .orderBy("month")
        .select(
            F.date_format("month", "yyyy-MM").alias("year_month_created_at"),
            name_or_id("item_name", "item_id"),
            shown,
        )
    )


def tpv_by_store(bought: DataFrame, stores: DataFrame) -> DataFrame:
    half = F.format_string("%d-H%d", (F.col("half") / 2).cast("int"), F.col("half") % 2 + 1)
    return (
        bought.where("in_opening_hours")
        .groupBy("half", "store_id")
        .agg(F.sum("final_amount").alias("tpv"))
        .join(F.broadcast(stores), "store_id", "left")
        .withColumn("store_name", name_or_id("store_name", "store_id"))
        .orderBy("half", "store_name", "store_id")
        .select(half.alias("year_half_created_at"), "store_name", amount_text("tpv"))
    )


def top_customers(bought: DataFrame, stores: DataFrame, users: DataFrame) -> DataFrame:
    by_purchases = Window.partitionBy("store_id").orderBy(F.desc("purchases"), "user_id")
    top = (
        bought.where("user_id IS NOT NULL")
        .groupBy("store_id", "user_id")
        .agg(F.count("*").alias("purchases"))
        .withColumn("rank", F.row_number().over(by_purchases))
        .where("rank <= 3")
    )
    # The few customers are the small side, but an outer join can only broadcast the other one.
    birthdates = users.join(F.broadcast(top.select("user_id").distinct()), "user_id", "left_semi")
    return (
        top.join(F.broadcast(stores), "store_id", "left")
        .join(F.broadcast(birthdates), "user_id", "left")
        .withColumn("store_name", name_or_id("store_name", "store_id"))
        .orderBy("store_name", F.asc_nulls_first("birthdate"), "user_id")
        .select("store_name", "birthdate")
    )


def write(answer: DataFrame, file: Path) -> None:
    """Spark writes sorted parts in parallel; the answer is their concatenation under one header."""
    parts = file.with_suffix(".parts")
    answer.write.csv(str(parts), escape=QUOTE)
    with file.open("wb") as whole:
        whole.write((",".join(answer.columns) + "\n").encode())
        for part in sorted(parts.glob("part-*.csv")):
            with part.open("rb") as rows:
                shutil.copyfileobj(rows, whole)
    shutil.rmtree(parts)


def answer(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    spark = open_session()
    stores = read(spark, data, "stores").select("store_id", "store_name")
    menu = read(spark, data, "menu_items").select("item_id", "item_name")
    users = read(spark, data, "users").select("user_id", "birthdate")
    bought = purchases(read(spark, data, "transactions")).cache()
    sales = monthly_sales(read(spark, data, "transaction_items")).cache()
    answers = {
        "1": large_purchases(bought),
        "2_1": best_products(sales, menu, "sellings_qty", F.col("sellings_qty")),
        "2_2": best_products(sales, menu, "profit_sum", amount_text("profit_sum")),
        "3": tpv_by_store(bought, stores),
        "4": top_customers(bought, stores, users),
    }
    for name, frame in answers.items():
        write(frame, out / f"results_query_{name}.csv")
    spark.stop()


if __name__ == "__main__":
    answer(*map(Path, sys.argv[1:3]))
