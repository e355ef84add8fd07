"""Random sales as CSV folders, questions about all columns, and the expected bytes of the answers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from kopitiam.contracts.money import to_text
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Column, Kind, Table
from kopitiam.questions.catalog import read_json
from kopitiam.questions.definitions import Question
from kopitiam.questions.layout import LAYOUT
from kopitiam.verification import expected_answers

Integers = NDArray[np.int64]
LARGEST_ID = 10**17 - 1
LARGEST_AMOUNT = 2**62 // 131_073  # units or pieces: 131,073 rows of them do not overflow
FIRST_SECOND, LAST_SECOND = (
    int(np.datetime64(instant, "s").astype(np.int64))
    for instant in ("2023-12-31 23:59:59", "2025-12-31 23:00:00")
)
EARLIEST, LATEST = (
    int(np.datetime64(instant, "s").astype(np.int64))
    for instant in ("0001-01-01 00:00:00", "9999-12-31 23:59:59")
)
BOOLEANS = ("True", "False", "true", "0")
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
MISSING_EVERY = 4  # of ids that no table lists
LONGEST_TEXT = 1_024
MOST_KEYS = 16  # of a question


@dataclass(frozen=True)
class Drawn:
    """How many rows, in chunks of how many; how many distinct values a column has; how they are ordered.

    Each column is sorted, reversed or shuffled by itself: rows need not make sense.
    """

    rows: int
    chunk_rows: int
    ids: int
    amounts: int
    largest_amount: int  # in units, and of quantities too; small ones compress better
    instants: int
    texts: int
    empty_percent: int
    order: str
    seed: int


def _attributes(fact: str) -> dict[str, str]:
    """All attributes of the records that a fact refers to, as expressions by name."""
    return {
        column: f"{table}.{column}"
        for table in LAYOUT[fact].references.values()
        for column in LAYOUT[table].by_name
        if column != LAYOUT[table].key
    }


def _listing(name: str, fact: str, *where: str) -> dict[str, Any]:
    """A question that lists rows with all columns and all attributes."""
    columns = [*LAYOUT[fact].by_name, *_attributes(fact)]
    return {"name": name, "title": name, "from": fact, "where": [*where], "columns": columns}


def _grouping(name: str, fact: str, **measures: str) -> dict[str, Any]:
    """A question that groups all rows by attributes, by as many as a question may have keys."""
    keys = dict(list(_attributes(fact).items())[-MOST_KEYS:])
    columns = [*keys, *measures]
    return {"name": name, "title": name, "from": fact, "by": keys, "measure": measures, "columns": columns}


ALL_COLUMNS: Sequence[Question] = read_json(
    [
        _listing("sales", "transactions", "transaction_id >= 'kopi 3'", "voucher_id is not null"),
        _listing("sold", "transaction_items", "transaction_id <> 'kopi 3'", "unit_price is not null"),
        _grouping(
            "groups_of_sales",
            "transactions",
            purchases="count(*)",
            methods="count(payment_method_id)",
            customers="count(distinct user_id)",
            original="sum(original_amount)",
            share="ratio(sum(discount_applied), sum(original_amount))",
            least="min(final_amount)",
            first="min(transaction_id)",
            last="max(created_at)",
        ),
        _grouping(
            "groups_of_items",
            "transaction_items",
            pieces="sum(quantity)",
            value="sum(quantity * unit_price)",
            least="min(unit_price)",
            sold="count(distinct transaction_id)",
            mean="avg(subtotal)",
        ),
    ]
)


def write_folder(drawn: Drawn, folder: Path, tables: Iterable[Table]) -> Path:
    """Write the tables. Every fourth id of a fact is missing from the table that it refers to."""
    columns = _Columns(drawn, np.random.default_rng(drawn.seed))
    ids = {name: columns.ids() for name, table in LAYOUT.items() if not table.is_fact}
    for table in tables:
        layout = LAYOUT[table.name]
        if layout.is_fact:
            rows = drawn.rows
            known = {key: columns.of(ids[other]) for key, other in layout.references.items()}
        else:
            known = {layout.key: ids[table.name][np.arange(len(ids[table.name])) % MISSING_EVERY != 1]}
            rows = len(known[layout.key])
        cells = {each.name: columns.cells(each, rows, known.get(each.name)) for each in table.columns}
        path = folder / table.name / f"{table.name}_202401.csv"
        path.parent.mkdir(parents=True)
        pa_csv.write_csv(pa.table(cells), path)
    return folder


def expected_files(folder: Path, questions: Sequence[Question]) -> dict[str, bytes]:
    """The bytes of each answer file, computed without Spark and without our own parser."""
    answers = expected_answers(folder, Parameters(), questions)
    return {
        question.name: "".join(
            f"{','.join(map(_cell, row))}\n" for row in (question.shown, *answers[question.name])
        ).encode()
        for question in questions
    }


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


@dataclass(frozen=True)
class _Columns:
    drawn: Drawn
    rng: np.random.Generator

    def ids(self) -> Integers:
        return self._pool(self.drawn.ids, 0, LARGEST_ID, self.drawn.rows)

    def of(self, ids: Integers) -> Integers:
        return ids[self._places(len(ids), self.drawn.rows)]

    def cells(self, column: Column, rows: int, ids: Integers | None) -> pa.Array:
        """Draw a column, or take the ids that are drawn already."""
        values = self._drawn(column, rows) if ids is None else pa.array(ids)
        if not column.is_optional:
            return values
        is_empty = self.rng.integers(0, 100, size=rows) < self.drawn.empty_percent
        return values.take(pa.array(np.arange(rows), mask=is_empty))

    def _drawn(self, column: Column, rows: int) -> pa.Array:
        drawn = self.drawn
        match column.kind:
            case Kind.TEXT:
                pool = _texts(np.arange(min(drawn.texts, rows)))
            case Kind.MONEY:
                amounts = self._pool(drawn.amounts, -drawn.largest_amount, drawn.largest_amount, rows)
                pool = pa.array([to_text(value) for value in amounts.tolist()], pa.string())
            case Kind.COUNT:
                pool = pa.array(self._pool(drawn.amounts, -drawn.largest_amount, drawn.largest_amount, rows))
            case Kind.INSTANT:
                bounds = (FIRST_SECOND, LAST_SECOND) if column.name == "created_at" else (EARLIEST, LATEST)
                pool = pa.array(self._pool(drawn.instants, *bounds, rows)).cast(pa.timestamp("s"))
            case Kind.DATE:
                days = self._pool(drawn.instants, FIRST_DAY, LAST_DAY, rows)
                pool = pa.array(days.astype(np.int32)).cast(pa.date32())
            case Kind.BOOLEAN:
                pool = pa.array(BOOLEANS)
            case _:
                raise AssertionError(f"{column.name}: ids are drawn once for all tables")
        return pool.take(pa.array(self._places(len(pool), rows)))

    def _pool(self, distinct: int, least: int, most: int, rows: int) -> Integers:
        """Distinct values in order: the upper bound, the lower bound, others between them."""
        distinct = min(distinct, rows)
        others = self.rng.integers(least + 1, most, size=max(distinct - 2, 0))
        return np.unique(np.concatenate([[most, least][:distinct], others]).astype(np.int64))

    def _places(self, count: int, rows: int) -> Integers:
        places = np.arange(rows) * count // max(rows, 1)
        if self.drawn.order == "shuffled":
            return self.rng.permutation(places)
        return places[::-1] if self.drawn.order == "reversed" else places


def _texts(numbers: Integers) -> pa.Array:
    """Distinct for distinct numbers; every thousandth is as long as a text may be."""
    return pa.array(
        [
            f"{number} {'☕' * (LONGEST_TEXT - 1 - len(str(number)))}"
            if number % 1_000 == 7
            else f'"{number}", kopi\n'
            if number % 10 == 3
            else f"kopi {number}"
            for number in numbers.tolist()
        ],
        pa.string(),
    )
