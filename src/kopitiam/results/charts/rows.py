"""The rows of each chart: numbers for the axes, and beside them the exact figures that people read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.money import UNITS, to_text
from kopitiam.results.charts.distribution import Bin, distribution
from kopitiam.results.reading import Answers
from kopitiam.results.ringgit import ringgit
from kopitiam.results.text import shorten

MOST_MONTHS = 120
MOST_STORES = 30
MOST_CUSTOMERS = 10  # of a store
MAX_BAR_LABEL = 34  # characters at the end of a bar
MAX_AXIS_LABEL = 200  # which a picture shortens to the room that it has
UNKNOWN = "unknown"
_BETWEEN = " · "

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
            "store_name": row["store_name"],
            "year_half_created_at": row["year_half_created_at"],
            "tpv": float(row["tpv"]),
            "exact": ringgit(row["tpv"]),
            "label": ringgit(row["tpv"]),
        }
        for store, row in _of_first_stores(answers, "3")
    ]


def of_customers(answers: Answers) -> list[Row]:
    leading = [pair for pair in _of_first_stores(answers, "4") if pair[1]["rank"] <= MOST_CUSTOMERS]
    leading.sort(key=lambda pair: (pair[1]["store_name"], pair[1]["store_id"], pair[1]["rank"]))
    return [
        {
            "store": store,
            "store_name": row["store_name"],
            "rank": row["rank"],
            "birthdate": (born := str(row["birthdate"] or UNKNOWN)),
            "purchases": row["purchases"],
            "exact": f"{row['purchases']:,}",
            "label": f"{born} · {row['purchases']:,}",
        }
        for store, row in leading
    ]


def _of_products(answers: Answers, name: str, figure: str, shown: Callable[[Any], str]) -> list[Row]:
    return [
        {
            "year_month_created_at": row["year_month_created_at"],
            "item_name": row["item_name"],
            figure: float(row[figure]),
            "exact": shown(row[figure]),
            "label": _bar_label(row["item_name"], shown(row[figure])),
        }
        for row in islice(_rows(answers, name), MOST_MONTHS)
    ]


def _bar_label(name: str, figure: str) -> str:
    """Where there is no room for both, the name is cut and the figure stays whole."""
    room = max(1, MAX_BAR_LABEL - len(figure) - len(_BETWEEN))
    return f"{shorten(name, room)}{_BETWEEN}{figure}"


def _rows(answers: Answers, name: str) -> Iterator[Row]:
    return (row for batch in answers.batches(name) for row in batch.to_pylist())


def _of_first_stores(answers: Answers, name: str) -> list[tuple[str, Row]]:
    """Rows of the first stores by name, each with a label for the store. Holds one batch in memory at a time:
    there may be many stores with long names."""
    labels = _labels(answers, name)
    wanted = pa.array(labels, pa.int64())
    kept = (batch.filter(pc.is_in(batch["store_id"], wanted)) for batch in answers.batches(name))
    rows = [(labels[row["store_id"]], row) for batch in kept for row in batch.to_pylist()]
    order = {label: position for position, label in enumerate(labels.values())}
    return sorted(rows, key=lambda pair: order[pair[0]])


def _labels(answers: Answers, name: str) -> dict[int, str]:
    """By id: the name, shortened, and the id beside it if others have that name."""
    first: list[tuple[str, int]] = []
    for batch in answers.batches(name):
        pairs = pa.Table.from_batches([batch]).group_by(["store_name", "store_id"]).aggregate([]).to_pylist()
        stores = {*first, *((pair["store_name"], pair["store_id"]) for pair in pairs)}
        first = nsmallest(MOST_STORES + 1, stores)  # the one beyond may share the name of the last
    shared = Counter(shorten(store, MAX_AXIS_LABEL) for store, _ in first)
    return {
        number: f"{label} (store {number})" if shared[label] > 1 else label
        for label, number in (
            (shorten(store, MAX_AXIS_LABEL), number) for store, number in first[:MOST_STORES]
        )
    }


def _span(found: Bin) -> str:
    first = ringgit(to_text(found.first))
    return f"{first} and more" if found.is_open else f"{first} to below {ringgit(to_text(found.beyond))}"
