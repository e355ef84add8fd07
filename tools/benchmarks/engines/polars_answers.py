"""The five answers by Polars: lazy scans that all questions share, the streaming engine, money in Decimal.

    python polars_answers.py DATA OUT

Times stay ISO text, which sorts as time does and is several times quicker to read than a Datetime.
"""

import sys
from pathlib import Path

import polars as pl

MONEY = pl.Decimal(18, 4)
SCHEMAS = {
    "transactions": {
        "transaction_id": pl.String,
        "store_id": pl.Int32,
        "payment_method_id": pl.String,
        "voucher_id": pl.String,
        "user_id": pl.Float64,  # written as `17272.0`; whole numbers are exact up to 2^53
        "original_amount": pl.String,
        "discount_applied": pl.String,
        "final_amount": MONEY,
        "created_at": pl.String,
    },
    "transaction_items": {
        "transaction_id": pl.String,
        "item_id": pl.Int32,
        "quantity": pl.Int64,
        "unit_price": pl.String,
        "subtotal": MONEY,
        "created_at": pl.String,
    },
    "users": {"user_id": pl.Int64, "gender": pl.String, "birthdate": pl.String, "registered_at": pl.String},
    "stores": {
        "store_id": pl.Int32,
        "store_name": pl.String,
        "street": pl.String,
        "postal_code": pl.String,
        "city": pl.String,
        "state": pl.String,
        "latitude": pl.String,
        "longitude": pl.String,
    },
    "menu_items": {
        "item_id": pl.Int32,
        "item_name": pl.String,
        "category": pl.String,
        "price": pl.String,
        "is_seasonal": pl.String,
        "available_from": pl.String,
        "available_to": pl.String,
    },
}

IN_YEARS = pl.col("created_at").is_between(pl.lit("2024-01-01"), pl.lit("2026-01-01"), closed="left")
IN_OPENING_HOURS = pl.col("created_at").str.slice(11).is_between(pl.lit("06:00:00"), pl.lit("23:00:00"))


def amount_text(name: str) -> pl.Expr:
    """Decimal prints four decimals; the reference form keeps the first and no zeros past it."""
    digits = pl.col(name).cast(pl.String)
    return (digits.str.head(-3) + digits.str.tail(3).str.strip_chars_end("0")).alias(name)


def large_purchases(transactions: pl.LazyFrame) -> pl.LazyFrame:
    return (
        transactions.filter(IN_OPENING_HOURS, pl.col("final_amount") >= 75)
        .select("transaction_id", "final_amount")
        .sort("transaction_id", "final_amount")
        .with_columns(amount_text("final_amount"))
    )


def monthly_sales(items: pl.LazyFrame) -> pl.LazyFrame:
    return items.group_by(pl.col("created_at").str.head(7).alias("year_month_created_at"), "item_id").agg(
        pl.col("quantity").sum().alias("sellings_qty"), pl.col("subtotal").sum().alias("profit_sum")
    )


def best_products(sales: pl.DataFrame, menu: pl.DataFrame, measure: str) -> pl.DataFrame:
    return (
        sales.sort("year_month_created_at", pl.col(measure), "item_id", descending=[False, True, False])
        .unique("year_month_created_at", keep="first", maintain_order=True)
        .join(menu, on="item_id", how="left", maintain_order="left")
        .select("year_month_created_at", name_or_id("item_name", "item_id"), measure)
    )


def tpv_by_store(transactions: pl.LazyFrame, stores: pl.LazyFrame) -> pl.LazyFrame:
    half = pl.when(pl.col("created_at").str.slice(5, 2) <= "06").then(pl.lit("-H1")).otherwise(pl.lit("-H2"))
    return (
        transactions.filter(IN_OPENING_HOURS)
        .group_by((pl.col("created_at").str.head(4) + half).alias("year_half_created_at"), "store_id")
        .agg(pl.col("final_amount").sum().alias("tpv"))
        .join(stores, on="store_id", how="left")
        .with_columns(name_or_id("store_name", "store_id"))
        .sort("year_half_created_at", "store_name", "store_id")
        .select("year_half_created_at", "store_name", amount_text("tpv"))
    )


def top_customers(transactions: pl.LazyFrame, stores: pl.LazyFrame, users: pl.LazyFrame) -> pl.LazyFrame:
    counts = (
        transactions.filter(pl.col("user_id").is_not_null())
        .group_by("store_id", pl.col("user_id").cast(pl.Int64))
        .agg(pl.len().alias("purchases"))
    )
    # The third largest count leaves a handful of rows per store to sort, instead of millions.
    third_largest = pl.col("purchases").top_k(3).min().over("store_id")
    return (
        counts.filter(pl.col("purchases") >= third_largest)
        .sort("store_id", "purchases", "user_id", descending=[False, True, False])
        .group_by("store_id", maintain_order=True)
        .head(3)
        .join(stores, on="store_id", how="left")
        .join(users, on="user_id", how="left")
        .with_columns(name_or_id("store_name", "store_id"))
        .sort("store_name", "birthdate", "user_id", nulls_last=False)
        .select("store_name", "birthdate")
    )


def name_or_id(name: str, key: str) -> pl.Expr:
    return pl.coalesce(pl.col(name), pl.col(key).cast(pl.String)).alias(name)


def answer(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        table: pl.scan_csv(f"{data}/*{table}/{table}*.csv", schema=schema)
        for table, schema in SCHEMAS.items()
    }
    transactions = tables["transactions"].filter(IN_YEARS)
    stores = tables["stores"].select("store_id", "store_name")
    users = tables["users"].select("user_id", "birthdate")
    large, sales, tpv, top, menu = pl.collect_all(
        [
            large_purchases(transactions),
            monthly_sales(tables["transaction_items"].filter(IN_YEARS)),
            tpv_by_store(transactions, stores),
            top_customers(transactions, stores, users),
            tables["menu_items"].select("item_id", "item_name"),
        ],
        engine="streaming",
    )
    answers = {
        "1": large,
        "2_1": best_products(sales, menu, "sellings_qty"),
        "2_2": best_products(sales, menu, "profit_sum").with_columns(amount_text("profit_sum")),
        "3": tpv,
        "4": top,
    }
    for name, frame in answers.items():
        frame.write_csv(out / f"results_query_{name}.csv")


if __name__ == "__main__":
    answer(*map(Path, sys.argv[1:3]))
