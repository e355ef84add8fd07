"""Sales drawn by chance or written by hand, cut into numbered chunks, and plain Python's answers to them."""

import csv
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa

from catalog_tables import TABLES
from kopitiam.contracts.money import to_units
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from oracle import plain_answers

Rows = Sequence[tuple[Any, ...]]
NOON = "2024-03-01 12:00:00"
TIMES = (
    "2023-12-31 23:59:59",
    "2024-01-01 00:00:00",
    "2024-02-29 06:00:00",
    "2024-06-30 23:00:00",
    "2024-06-30 23:00:01",
    "2024-07-01 08:00:00",
    "2025-12-31 20:00:00",
    "2026-01-01 12:00:00",
)
AMOUNTS = ("-75", "0.0001", "60.5", "74.9999", "75", "75.075", "1000000000000")
NAMES: dict[str, Rows] = {
    "stores": [(1, "North"), (2, "Twin"), (3, "Twin")],
    "menu_items": [(1, "Latte"), (2, "Mocha")],
    "users": [(1, "1990-01-01"), (2, "1980-02-02"), (3, None)],
}
_CELLS: dict[Kind, Callable[[str], Any]] = {
    Kind.MONEY: to_units,
    Kind.INSTANT: lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
    Kind.DATE: date.fromisoformat,
}


class Chunk(NamedTuple):
    table: str
    number: int
    rows: Rows


def in_normal_form(table: str, rows: Rows) -> pa.Table:
    """Rows with their columns in declared order; amounts, times and dates as they are spelled in a CSV."""
    columns = TABLES[table].columns
    cells = [
        {
            column.name: _CELLS[column.kind](cell) if cell is not None and column.kind in _CELLS else cell
            for column, cell in zip(columns, row, strict=True)
        }
        for row in rows
    ]
    return pa.Table.from_pylist(cells, schema=TABLES[table].schema)


def sales(seed: int, count: int = 40) -> dict[str, Rows]:
    """As many transactions as items; with ids that come twice, that no table knows, and with many ties."""
    draw = random.Random(seed)

    def how_much_and_when() -> tuple[str, str]:
        return draw.choice(AMOUNTS), draw.choice(TIMES)

    return NAMES | {
        "transactions": [
            (f"sale {number % 30}", draw.randint(1, 4), draw.choice([None, 1, 2, 3, 4]), *how_much_and_when())
            for number in range(count)
        ],
        "transaction_items": [
            (draw.randint(1, 3), draw.randint(-1, 3), *how_much_and_when()) for _ in range(count)
        ],
    }


def cut(tables: dict[str, Rows], rows_a_chunk: int) -> list[Chunk]:
    return [
        Chunk(table, number, rows[begin : begin + rows_a_chunk])
        for table, rows in tables.items()
        for number, begin in enumerate(range(0, len(rows), rows_a_chunk))
    ]


def plain(chunks: Iterable[Chunk], questions: Parameters | None = None) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each answer file, computed without Spark."""
    rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
    for chunk in chunks:
        rows[chunk.table] += chunk.rows
    with TemporaryDirectory() as folder:
        for table, of_table in rows.items():
            file = Path(folder) / table / f"{table}.csv"
            file.parent.mkdir()
            with file.open("w", encoding="utf-8", newline="") as lines:
                writer = csv.writer(lines)
                writer.writerow(column.name for column in TABLES[table].columns)
                writer.writerows(of_table)
        return plain_answers(Path(folder), questions or Parameters())


def rows_into_stages(
    chunks: Iterable[Chunk], shards: int, parameters: Parameters | None = None
) -> dict[tuple[str, int], int]:
    """How many rows come into each stage of the catalog before the barrier, by shard; counted one by one."""
    asked = parameters or Parameters()
    counts: Counter[tuple[str, int]] = Counter()
    for chunk in chunks:
        shard = chunk.number % shards
        if chunk.table in NAMES:
            counts[f"check_{chunk.table}", shard] += len(chunk.rows)
            continue
        for row in chunk.rows:
            time = row[-1]
            counts["filter_year", shard] += 1
            if not asked.first_year <= int(time[:4]) <= asked.last_year:
                continue
            if chunk.table == "transaction_items":
                counts["agg_products", shard] += 1
                continue
            counts["filter_hour", shard] += 1
            counts["filter_4", shard] += 1
            counts["agg_purchases", shard] += row[2] is not None
            if asked.opening <= time[11:] <= asked.closing:
                counts["agg_tpv", shard] += 1
                counts["filter_amount", shard] += 1
    return counts
