"""The rows of the answers as the report shows them: for people, and never more than a page can bear."""

from collections.abc import Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kopitiam.results.reading import Answers
from kopitiam.results.ringgit import ringgit

MOST_ROWS = 500
UNMATCHED = "not in its table"


@dataclass(frozen=True)
class Cells:
    columns: list[str]
    rows: list[list[str]]
    numbers: Set[int] = field(default_factory=frozenset)  # the columns that hold figures
    left_out: int = 0


def products(answers: Answers, name: str) -> Cells:
    figure = "sellings_qty" if name == "2_1" else "profit_sum"
    read, left_out = _first(answers, name)
    rows = [
        [
            row["year_month_created_at"],
            _named(row["item_name"], row["item_is_matched"]),
            f"{row[figure]:,}" if name == "2_1" else ringgit(row[figure]),
        ]
        for row in read
    ]
    return Cells(["month", "product", "sold" if name == "2_1" else "earned"], rows, {2}, left_out)


def payment_values(answers: Answers) -> Cells:
    """A line for each store, a column for each half-year."""
    read, left_out = _first(answers, "3")
    halves = sorted({row["year_half_created_at"] for row in read})
    stores: dict[tuple[str, int], dict[str, str]] = {}
    for row in read:
        name = _named(row["store_name"], row["store_is_matched"])
        stores.setdefault((name, row["store_id"]), {})[row["year_half_created_at"]] = ringgit(row["tpv"])
    rows = [[name, *(paid.get(half, "–") for half in halves)] for (name, _), paid in sorted(stores.items())]
    return Cells(["store", *halves], rows, set(range(1, len(halves) + 1)), left_out)


def customers(answers: Answers) -> Cells:
    read, left_out = _first(answers, "4")
    rows = [
        [
            _named(row["store_name"], row["store_is_matched"]),
            str(row["birthdate"] or "unknown"),
            f"{row['rank']}",
            f"{row['purchases']:,}",
        ]
        for row in sorted(read, key=lambda row: (row["store_name"], row["store_id"], row["rank"]))
    ]
    return Cells(["store", "born", "rank", "purchases"], rows, {2, 3}, left_out)


def _first(answers: Answers, name: str) -> tuple[list[dict[str, Any]], int]:
    rows = (row for batch in answers.batches(name) for row in batch.slice(0, MOST_ROWS).to_pylist())
    read = list(islice(rows, MOST_ROWS))
    return read, answers.rows(name) - len(read)


def _named(name: str, is_matched: bool) -> str:
    return name if is_matched else f"{name} ({UNMATCHED})"
