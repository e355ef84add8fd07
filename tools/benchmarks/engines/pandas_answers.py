"""The five answers by pandas: the Arrow reader, one month in memory at a time, partial sums merged.

    python pandas_answers.py DATA OUT

Money is read as float64 and rounded to whole ten-thousandths at once: exact for amounts below 10^11, and all
sums are then integer sums.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

UNITS = 10_000
BEGIN, END = pd.Timestamp("2024-01-01"), pd.Timestamp("2026-01-01")
OPENING, CLOSING = 6 * 3600, 23 * 3600


def read_months(data: Path, table: str, columns: list[str]) -> Iterator[pd.DataFrame]:
    for file in sorted(data.glob(f"*{table}/{table}*.csv")):
        frame = pd.read_csv(file, engine="pyarrow", usecols=columns, dtype={"created_at": "datetime64[s]"})
        yield frame[(frame["created_at"] >= BEGIN) & (frame["created_at"] < END)]


def read_names(data: Path, table: str, key: str, name: str) -> pd.Series:
    files = sorted(data.glob(f"*{table}/{table}*.csv"))
    frames = [
        pd.read_csv(f, engine="pyarrow", usecols=[key, name], dtype={key: "int64", name: "str"})
        for f in files
    ]
    return pd.concat(frames).set_index(key)[name]


def to_units(amounts: pd.Series) -> pd.Series:
    return (amounts * UNITS).round().astype("int64")


def amount_text(units: pd.Series) -> pd.Series:
    """No zeros past the first decimal; the units hold four of them."""
    signs = units.lt(0).map({True: "-", False: ""})
    digits = units.abs().astype("str").str.zfill(5)
    return signs + digits.str[:-4] + "." + digits.str[-4] + digits.str[-3:].str.rstrip("0")


def name_or_id(ids: pd.Series, names: pd.Series) -> pd.Series:
    return ids.map(names).fillna(ids.astype("str"))


def sum_of_partials(partials: list[pd.DataFrame]) -> pd.DataFrame:
    merged = pd.concat(partials)
    return merged.groupby(level=merged.index.names, sort=False).sum().reset_index()


def purchases(data: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Large purchases, the amount by half-year and store, and the purchases by store and customer."""
    columns = ["transaction_id", "store_id", "user_id", "final_amount", "created_at"]
    large, tpv, counts = [], [], []
    for month in read_months(data, "transactions", columns):
        month["final_amount"] = to_units(month["final_amount"])
        second_of_day = month["created_at"].astype("int64") % 86_400
        open_hours = month[second_of_day.between(OPENING, CLOSING)]
        large.append(
            open_hours.loc[open_hours["final_amount"] >= 75 * UNITS, ["transaction_id", "final_amount"]]
        )
        created_at = open_hours["created_at"].dt
        half = (created_at.year * 2 + (created_at.month > 6)).rename("half")
        tpv.append(open_hours.groupby([half, "store_id"], sort=False)[["final_amount"]].sum())
        known = month.loc[month["user_id"].notna(), ["store_id", "user_id"]].astype("int64")
        counts.append(known.groupby(["store_id", "user_id"], sort=False).size().to_frame("purchases"))
    return pd.concat(large), sum_of_partials(tpv), sum_of_partials(counts)


def monthly_sales(data: Path) -> pd.DataFrame:
    partials = []
    for items in read_months(data, "transaction_items", ["item_id", "quantity", "subtotal", "created_at"]):
        items["subtotal"] = to_units(items["subtotal"])
        month = pd.Series(
            items["created_at"].to_numpy().astype("M8[M]").astype("int64"), items.index, name="month"
        )
        partials.append(items.groupby([month, "item_id"], sort=False)[["quantity", "subtotal"]].sum())
    sales = sum_of_partials(partials)
    sales["year_month_created_at"] = (1970 + sales["month"] // 12).astype("str") + "-"
    sales["year_month_created_at"] += (sales["month"] % 12 + 1).astype("str").str.zfill(2)
    return sales.rename(columns={"quantity": "sellings_qty", "subtotal": "profit_sum"})


def best_products(sales: pd.DataFrame, menu: pd.Series, measure: str) -> pd.DataFrame:
    ranked = sales.sort_values(["month", measure, "item_id"], ascending=[True, False, True])
    best = ranked.drop_duplicates("month").assign(item_name=lambda rows: name_or_id(rows["item_id"], menu))
    return best[["year_month_created_at", "item_name", measure]]


def tpv_by_store(tpv: pd.DataFrame, stores: pd.Series) -> pd.DataFrame:
    named = tpv.assign(store_name=name_or_id(tpv["store_id"], stores), tpv=amount_text(tpv["final_amount"]))
    named = named.sort_values(["half", "store_name", "store_id"])
    half = (named["half"] // 2).astype("str") + "-H" + (named["half"] % 2 + 1).astype("str")
    return named.assign(year_half_created_at=half)[["year_half_created_at", "store_name", "tpv"]]


def top_customers(counts: pd.DataFrame, stores: pd.Series, birthdates: pd.Series) -> pd.DataFrame:
    ranked = counts.sort_values(["store_id", "purchases", "user_id"], ascending=[True, False, True])
    top = ranked.groupby("store_id").head(3)
    top = top.assign(store_name=name_or_id(top["store_id"], stores), birthdate=top["user_id"].map(birthdates))
    ordered = top.sort_values(["store_name", "birthdate", "user_id"], na_position="first")
    return ordered[["store_name", "birthdate"]]


def answer(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    stores = read_names(data, "stores", "store_id", "store_name")
    menu = read_names(data, "menu_items", "item_id", "item_name")
    large, tpv, counts = purchases(data)
    large = large.sort_values(["transaction_id", "final_amount"])
    sales = monthly_sales(data)
    most_profitable = best_products(sales, menu, "profit_sum")
    answers = {
        "1": large.assign(final_amount=amount_text(large["final_amount"])),
        "2_1": best_products(sales, menu, "sellings_qty"),
        "2_2": most_profitable.assign(profit_sum=amount_text(most_profitable["profit_sum"])),
        "3": tpv_by_store(tpv, stores),
        "4": top_customers(counts, stores, read_names(data, "users", "user_id", "birthdate")),
    }
    for name, frame in answers.items():
        frame.to_csv(out / f"results_query_{name}.csv", index=False)


if __name__ == "__main__":
    answer(*map(Path, sys.argv[1:3]))
