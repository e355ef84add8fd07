"""Any question about any rows: strategies for definitions, and for the tables that they read."""

import csv
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kopitiam.questions.layout import LAYOUT
from question_oracle import Tables

INSTANTS = (
    "2023-12-31 23:59:59",
    "2024-01-01 00:00:00",
    "2024-06-30 23:00:00",
    "2024-07-01 06:00:00",
    "2024-12-30 05:59:59",
    "2025-01-01 23:00:01",
    "2025-12-31 12:30:00",
)
AMOUNTS = ("0", "75", "-12.5", "75.075", "0.0001", "1000000.9999", "99999999999999.9999")
NAMES = (
    "joined", "joined_id", "joined_city", "joined_item_name", "k0", "m0", "l0", "s0", "w0", "d0", "best",
    "winner", "place", "position", "known_id", "stores_id", "shard", "select", "order", "null", "date",
)  # fmt: skip


def _table(columns: dict[str, st.SearchStrategy[str]], least: int = 0, most: int = 12) -> Any:
    return st.lists(st.fixed_dictionaries(columns), min_size=least, max_size=most)


_ids = st.sampled_from(["1", "2", "3"])
_maybe_ids = st.sampled_from(["", "1.0", "2.0", "9.0"])
_maybe_text = st.sampled_from(["", "Ipoh", "Kuala Lumpur", "Ümlaut", "'quoted'"])
_dates = st.sampled_from(["", "1970-02-28", "2001-12-01"])
_money = st.sampled_from(AMOUNTS)
tables = st.fixed_dictionaries(
    {
        "transactions": _table(
            {
                "transaction_id": st.sampled_from(["a", "b", "c"]),
                "store_id": _ids,
                "payment_method_id": _ids,
                "voucher_id": _maybe_ids,
                "user_id": _maybe_ids,
                "original_amount": _money,
                "discount_applied": _money,
                "final_amount": _money,
                "created_at": st.sampled_from(INSTANTS),
            },
            most=25,
        ),
        "transaction_items": _table(
            {
                "transaction_id": st.sampled_from(["a", "b"]),
                "item_id": _ids,
                "quantity": st.sampled_from(["1", "2", "-3", "99999999999999999"]),
                "unit_price": _money,
                "subtotal": _money,
                "created_at": st.sampled_from(INSTANTS),
            },
            most=25,
        ),
        "users": _table(
            {
                "user_id": _ids,
                "gender": st.sampled_from(["", "female", "male"]),
                "birthdate": _dates,
                "registered_at": st.sampled_from(["", *INSTANTS]),
            }
        ),
        "stores": _table(
            {
                "store_id": _ids,
                "store_name": st.sampled_from(["North", "South", "Ünder"]),
                "street": _maybe_text,
                "postal_code": _maybe_text,
                "city": _maybe_text,
                "state": _maybe_text,
                "latitude": st.sampled_from(["", "3.117134"]),
                "longitude": st.sampled_from(["", "101.615027"]),
            }
        ),
        "menu_items": _table(
            {
                "item_id": _ids,
                "item_name": st.sampled_from(["Latte", "Espresso"]),
                "category": _maybe_text,
                "price": _money,
                "is_seasonal": st.sampled_from(["", "True", "False"]),
                "available_from": _dates,
                "available_to": _dates,
            }
        ),
        "payment_methods": _table(
            {"method_id": _ids, "method_name": st.sampled_from(["Cash", "Card"]), "category": _maybe_text}
        ),
        "vouchers": _table(
            {
                "voucher_id": _ids,
                "voucher_code": st.sampled_from(["TEN", "HALF"]),
                "discount_type": _maybe_text,
                "discount_value": _money,
                "valid_from": _dates,
                "valid_to": _dates,
            }
        ),
    }
)

_CONDITIONS = {
    "transactions": [
        "@year", "@hour", "@amount", "final_amount > 10", "user_id is null", "not voucher_id is null",
        "store_id in (1, 3)", "created_at >= '2024-07-01'", "original_amount - final_amount <> 0",
        "hour(created_at) between 6 and 12 or dayofweek(created_at) = 1",
        "case when user_id is null then final_amount > 1 else voucher_id is not null end",
    ],
    "transaction_items": [
        "@year", "@hour", "quantity > 1", "subtotal = unit_price * quantity", "transaction_id <> 'a'",
        "unit_price in (0, 75.075)",
    ],
}  # fmt: skip
_KEYS = {
    "transactions": [
        "store_id", "user_id", "voucher_id", "year_month(created_at)", "year_half(created_at)",
        "year_quarter(created_at)", "iso_week(created_at)", "date(created_at)", "hour(created_at)",
        "dayofweek(created_at)", "stores.city", "stores.store_name", "users.gender", "users.birthdate",
        "year_quarter(users.registered_at)", "month(users.birthdate)", "payment_methods.method_name",
        "vouchers.voucher_code", "user_id is null", "final_amount", "minute(created_at)", "day(created_at)",
        "case when final_amount > 50 then 'large' when final_amount < 0 then 'negative' end",
        "transaction_id", "stores.store_id", "users.user_id",
    ],
    "transaction_items": [
        "item_id", "menu_items.item_id", "menu_items.category", "menu_items.is_seasonal", "menu_items.price",
        "year(created_at)", "quarter(created_at)", "quantity * 2 + 1", "unit_price",
        "menu_items.available_from",
    ],
}  # fmt: skip
_MEASURES = {
    "transactions": [
        "count(*)", "sum(final_amount)", "avg(final_amount)", "min(final_amount)", "max(created_at)",
        "count(user_id)", "count(distinct user_id)", "count(distinct date(created_at))",
        "sum(original_amount) - 2 * sum(discount_applied)",
        "ratio(sum(case when user_id is null then 1 else 0 end), count(*))",
        "ratio(sum(final_amount), sum(original_amount))", "ratio(count(*), sum(final_amount))",
        "min(transaction_id)", "count(*) - count(voucher_id)", "max(year_month(created_at))",
        "sum(case when voucher_id is not null then discount_applied end)", "max(final_amount * 1000)",
    ],
    "transaction_items": [
        "count(*)", "sum(quantity)", "sum(subtotal)", "avg(quantity)", "ratio(sum(subtotal), sum(quantity))",
        "sum(quantity * unit_price)", "count(distinct transaction_id)", "sum(quantity) + sum(subtotal)",
        "max(quantity * unit_price)", "min(subtotal - unit_price * quantity)",
    ],
}  # fmt: skip
_ATTRIBUTES = {
    "store_id": ["store_name", "city", "latitude"],
    "user_id": ["birthdate", "gender", "registered_at"],
    "voucher_id": ["voucher_code", "discount_value"],
    "item_id": ["item_name", "category", "price", "is_seasonal"],
}


@st.composite
def definitions(draw: st.DrawFn, name: str = "mine") -> dict[str, Any]:
    fact = draw(st.sampled_from(["transactions", "transaction_items"]))

    def some(choices: list[str], least: int, most: int) -> list[str]:
        chosen = st.lists(st.sampled_from(choices), min_size=least, max_size=most, unique=True)
        return draw(chosen) if choices else []

    definition: dict[str, Any] = {
        "name": name,
        "title": "Mine",
        "from": fact,
        "where": some(_CONDITIONS[fact], 0, 3),
    }
    if draw(st.integers(0, 4)) == 0:
        columns = some(list(LAYOUT[fact].by_name), 1, 4)
        references = LAYOUT[fact].references
        columns += some([a for c in references for a in _ATTRIBUTES.get(c, ())], 0, 2)
        definition["columns"] = draw(st.permutations(columns))
        definition["order"] = draw(st.permutations(columns))[:2]
        return definition
    grouped = some(_KEYS[fact], 0, 3)
    grouped += grouped[: draw(st.integers(0, 1))]  # a key may stand there twice, under two names
    measured = some(_MEASURES[fact], 1, 3)
    names = draw(st.permutations([*NAMES, *(f"key_{n}" for n in range(8))]))
    keys = dict(zip(names, grouped, strict=False))
    measures = dict(zip(names[len(keys) :], measured, strict=False))
    attributes = [a for key in dict.fromkeys(grouped) for a in _ATTRIBUTES.get(key, ())]
    shown = [*keys, *measures, *some(attributes, 0, 2)]
    definition |= {"measure": measures, "columns": draw(st.permutations(shown))}
    if keys:
        definition["by"] = keys
    definition["order"] = draw(st.permutations(shown))[: draw(st.integers(0, 2))]
    if draw(st.booleans()):
        definition["rank"] = {
            "by": draw(st.sampled_from(list(measures))),
            "within": some(list(keys), 0, len(keys)),
            "top": draw(st.sampled_from([1, 2, "@top"])),
            "order": draw(st.sampled_from(["asc", "desc"])),
        }
    return definition


def write_tables(folder: Path, content: Tables) -> Path:
    """As CSV exports."""
    for table, rows in content.items():
        file = folder / table / f"{table}.csv"
        file.parent.mkdir(parents=True)
        with file.open("w", encoding="utf-8", newline="") as lines:
            writer = csv.DictWriter(lines, list(LAYOUT[table].by_name))
            writer.writeheader()
            writer.writerows(rows)
    return folder
