"""Answers made by hand, for tests of what is shown of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.questions import ANSWERS
from kopitiam.results.answers import _SCHEMAS as SCHEMAS


@dataclass(frozen=True)
class MadeAnswers:
    """By the names of answers, rows as tuples in the order of their schema; two rows to a batch."""

    tables: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)

    def schema(self, name: str) -> pa.Schema:
        return SCHEMAS[name]

    def rows(self, name: str) -> int:
        return len(self.tables.get(name, []))

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        yield from self._table(name).to_batches(max_chunksize=2)

    def write(self, folder: Path) -> Path:
        """As files of a download."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ANSWERS:
            pq.write_table(self._table(name), folder / f"results_query_{name}.parquet")
        return folder

    def _table(self, name: str) -> pa.Table:
        rows = [dict(zip(SCHEMAS[name].names, row, strict=True)) for row in self.tables.get(name, [])]
        return pa.Table.from_pylist(rows, SCHEMAS[name])


def sales(*amounts: str) -> list[tuple[object, ...]]:
    return [(f"sale-{number:04d}", Decimal(amount)) for number, amount in enumerate(amounts)]


def small_answers(store: str = "North", item: str = "Latte") -> MadeAnswers:
    return MadeAnswers(
        {
            "1": sales("75", "76.5", "100.075", "12055387.76"),
            "2_1": [("2024-01", 1, item, 3031, True), ("2024-02", 99, "99", 12, False)],
            "2_2": [
                ("2024-01", 2, "Espresso", Decimal("12055387.76"), True),
                ("2024-02", 1, item, Decimal("70.5"), True),
            ],
            "3": [
                ("2024-H1", 1, store, Decimal("115922.885"), True),
                ("2024-H1", 2, "South", Decimal("40"), True),
                ("2024-H2", 1, store, Decimal("12055387.76"), True),
            ],
            "4": [
                (1, store, 2, 7, None, 8, True, False),
                (1, store, 1, 8, date(1990, 1, 1), 1009, True, True),
                (2, "South", 1, 5, date(1980, 2, 2), 2, True, True),
            ],
        }
    )
