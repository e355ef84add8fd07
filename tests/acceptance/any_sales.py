"""Sales drawn column by column, as CSV folders, and the bytes of their answers computed by DuckDB."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from kopitiam.contracts.money import to_text
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.verification import expected_answers

Integers = NDArray[np.int64]
LARGEST_ID = 10**17 - 1
LARGEST_AMOUNT = 2**62 // 131_073  # units or pieces: so many rows of them do not overflow
FIRST_SECOND, LAST_SECOND = (
    int(np.datetime64(instant, "s").astype(np.int64))
    for instant in ("2023-12-31 23:59:59", "2025-12-31 23:00:00")
)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
MISSING_EVERY = 4  # of ids that no table lists
LONGEST_TEXT = 1_024


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


def write_folder(drawn: Drawn, folder: Path) -> Path:
    rng = np.random.default_rng(drawn.seed)
    columns = _Columns(drawn, rng)
    store, item, user = (columns.pool(drawn.ids, 0, LARGEST_ID) for _ in range(3))
    tables = {
        "transactions": {
            "transaction_id": columns.texts(),
            "store_id": columns.of(store),
            "user_id": columns.optional(columns.of(user)),
            "final_amount": columns.money(),
            "created_at": columns.instants(),
        },
        "transaction_items": {
            "item_id": columns.of(item),
            "quantity": columns.of(columns.amounts()),
            "subtotal": columns.money(),
            "created_at": columns.instants(),
        },
        "stores": columns.names("store_id", "store_name", store),
        "menu_items": columns.names("item_id", "item_name", item),
        "users": columns.birthdates(user),
    }
    for name, cells in tables.items():
        path = folder / name / f"{name}_202401.csv"
        path.parent.mkdir(parents=True)
        pa_csv.write_csv(pa.table(cells), path)
    return folder


def expected_files(folder: Path) -> dict[str, bytes]:
    """The bytes of each answer file, computed without Spark and without our own parser."""
    answers = expected_answers(folder, Parameters())
    return {
        name: "".join(f"{','.join(map(_cell, row))}\n" for row in (builtin()[name].shown, *rows)).encode()
        for name, rows in answers.items()
    }


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


@dataclass(frozen=True)
class _Columns:
    drawn: Drawn
    rng: np.random.Generator

    def pool(self, distinct: int, least: int, most: int) -> Integers:
        """Distinct values in order: the upper bound, the lower bound, others between them."""
        distinct = min(distinct, self.drawn.rows)
        others = self.rng.integers(least + 1, most, size=max(distinct - 2, 0))
        return np.unique(np.concatenate([[most, least][:distinct], others]).astype(np.int64))

    def of(self, pool: Integers) -> Integers:
        return pool[self._places(len(pool))]

    def amounts(self) -> Integers:
        return self.pool(self.drawn.amounts, -self.drawn.largest_amount, self.drawn.largest_amount)

    def money(self) -> pa.Array:
        pool = self.amounts()
        texts = pa.array([to_text(value) for value in pool.tolist()])
        return texts.take(pa.array(self._places(len(pool))))

    def instants(self) -> pa.Array:
        seconds = self.of(self.pool(self.drawn.instants, FIRST_SECOND, LAST_SECOND))
        return pa.array(seconds).cast(pa.timestamp("s"))

    def texts(self) -> pa.Array:
        count = min(self.drawn.texts, self.drawn.rows)
        return _texts(np.arange(count)).take(pa.array(self._places(count)))

    def optional(self, values: Integers) -> pa.Array:
        is_empty = self.rng.integers(0, 100, size=len(values)) < self.drawn.empty_percent
        return pa.array(values, mask=is_empty)

    def names(self, key: str, name: str, pool: Integers) -> dict[str, pa.Array]:
        listed = pool[np.arange(len(pool)) % MISSING_EVERY != 1]
        return {key: pa.array(listed), name: _texts(listed % self.drawn.texts)}

    def birthdates(self, pool: Integers) -> dict[str, pa.Array]:
        listed = pool[np.arange(len(pool)) % MISSING_EVERY != 1]
        days = self.rng.integers(FIRST_DAY, LAST_DAY + 1, size=len(listed))
        return {
            "user_id": pa.array(listed),
            "birthdate": pa.array(days.astype(np.int32)).cast(pa.date32()),
        }

    def _places(self, count: int) -> Integers:
        places = np.arange(self.drawn.rows) * count // self.drawn.rows
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
