"""The rows of each chart: numbers for the axes, and beside them the exact figures that people read."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.money import UNITS, to_text
from kopitiam.results.charts.distribution import Bin, distribution
from kopitiam.results.reading import Answers
from kopitiam.results.ringgit import ringgit

MOST_MONTHS = 120
MOST_STORES = 30
MOST_CUSTOMERS = 10  # of a store
UNKNOWN = "unknown"

Row = dict[str, Any]


def of_amounts(answers: Answers) -> list[Row]:
    return bin_rows(distribution(answers).bins)


def bin_rows(bins: Iterable[Bin]) -> list[Row]:
    return [
        {
            "amount_from": found.first / UNITS,
            "amount_to": found.beyond / UNITS,
            "amounts": _span(found),
            "purchases": found.count,
            "exact": f"{found.count:,}",
        }
        for found in bins
    ]


def of_best_sellers(answers: Answers) -> list[Row]:
    return _of_products(answers, "2_1", "sellings_qty", lambda figure: f"{figure:,}")


def of_most_profitable(answers: Answers) -> list[Row]:
    return _of_products(answers, "2_2", "profit_sum", ringgit)


def of_payment_values(answers: Answers) -> list[Row]:
    return [
        {
            "store": store,
            "year_half_created_at": row["year_half_created_at"],
            "tpv": float(row["tpv"]),
            "exact": ringgit(row["tpv"]),
            "label": ringgit(row["tpv"]),
        }
        for store, row in _by_store(_read(answers, "3"))
    ]


def of_customers(answers: Answers) -> list[Row]:
    ranked = _read(answers, "4")
    leading = ranked.filter(pc.less_equal(ranked["rank"], MOST_CUSTOMERS))
    leading = leading.sort_by([("store_name", "ascending"), ("store_id", "ascending"), ("rank", "ascending")])
    return [
        {
            "store": store,
            "rank": row["rank"],
            "birthdate": (born := str(row["birthdate"] or UNKNOWN)),
            "purchases": row["purchases"],
            "exact": f"{row['purchases']:,}",
            "label": f"{born} · {row['purchases']:,}",
        }
        for store, row in _by_store(leading)
    ]


def _of_products(answers: Answers, name: str, figure: str, shown: Callable[[Any], str]) -> list[Row]:
    return [
        {
            "year_month_created_at": row["year_month_created_at"],
            "item_name": row["item_name"],
            figure: float(row[figure]),
            "exact": shown(row[figure]),
            "label": f"{row['item_name']} · {shown(row[figure])}",
        }
        for row in _read(answers, name).slice(0, MOST_MONTHS).to_pylist()
    ]


def _read(answers: Answers, name: str) -> pa.Table:
    return pa.Table.from_batches(answers.batches(name), answers.schema(name))


def _by_store(table: pa.Table) -> list[tuple[str, Row]]:
    """Rows of the first stores by name, each with its name, or with its id too if others have that name."""
    pairs = table.group_by(["store_name", "store_id"]).aggregate([]).to_pylist()
    stores = sorted((pair["store_name"], pair["store_id"]) for pair in pairs)
    shared = Counter(name for name, _ in stores)
    label = {
        number: f"{name} (store {number})" if shared[name] > 1 else name
        for name, number in stores[:MOST_STORES]
    }
    kept = table.filter(pc.is_in(table["store_id"], pa.array(label, pa.int64())))
    rows = ((label[row["store_id"]], row) for row in kept.to_pylist())
    order = {name: position for position, name in enumerate(label.values())}
    return sorted(rows, key=lambda pair: order[pair[0]])


def _span(found: Bin) -> str:
    first = ringgit(to_text(found.first))
    return f"{first} and more" if found.is_open else f"{first} to below {ringgit(to_text(found.beyond))}"
