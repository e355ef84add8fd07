"""Cells of the profile `wild` in columns that the catalog's questions do not read, drawn by kind of column.

The bounds and edges of each kind are here too; `wild` has the columns that the catalog reads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.contracts.money import DIGITS, UNITS, to_text
from kopitiam.contracts.tables import Column, Kind
from kopitiam.synthetic.shapes import Texts, WildShape
from kopitiam.synthetic.wild_texts import wild_name

LARGEST_ID = 10 ** (DIGITS - 1) - 1
LARGEST_COUNT = 10 ** (DIGITS - 1) - 1
LARGEST_UNITS = 10**DIGITS - 1
EDGE_INSTANTS = (
    "0001-01-01 00:00:00",
    "1969-12-31 23:59:59",
    "1970-01-01 00:00:00",
    "2023-12-31 23:59:59",
    "2024-01-01 00:00:00",
    "2024-01-01 05:59:59",
    "2024-01-01 06:00:00",
    "2024-06-30 23:00:00",
    "2024-06-30 23:00:01",
    "2024-07-01 06:00:00",
    "2025-12-31 23:00:00",
    "2025-12-31 23:59:59",
    "2026-01-01 06:00:00",
    "9999-12-31 23:59:59",
)
EDGE_DATES = ("0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "2000-02-29", "9999-12-31")
EDGE_MONEY = tuple(map(to_text, (LARGEST_UNITS, -LARGEST_UNITS, 0, -1)))
BOOLEANS = ("True", "False", "true", "FALSE", "1", "0")
_FIRST_DAY, _DAYS = np.datetime64("0001-01-01"), 3_652_059  # to the end of the year 9999
_DAY_SECONDS = 86_400

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class WildCells:
    """Draws cells from `rng` in the way of a shape."""

    shape: WildShape
    rng: Generator

    def draw(self, column: Column, rows: int, wild_share: float = 1.0) -> pa.Array:
        """Return a cell for each row, spelled as in an export, and null where it is empty.

        Only `wild_share` of the texts is long or hostile: a table of many rows would be too large otherwise.
        """
        pool = self._pool(column, min(self.shape.variety, max(rows, 1)))
        places = self.rng.permutation(np.arange(rows) % len(pool))  # each value is as frequent as any other
        if column.kind is Kind.TEXT:
            plain = self._texts(Texts.PLAIN, column, len(pool))
            is_plain = self.rng.random(rows) >= wild_share
            pool, places = pa.concat_arrays([pool, plain]), places + len(pool) * is_plain
        return pool.take(pa.array(places, mask=self.empty(rows)))

    def empty(self, rows: int) -> Flags:
        """Draw which cells of an optional column are empty."""
        return np.asarray(self.rng.integers(0, 100, size=rows) < self.shape.empty_percent)

    def _pool(self, column: Column, distinct: int) -> pa.Array:
        match column.kind:
            case Kind.TEXT:
                return self._texts(self.shape.texts, column, distinct)
            case Kind.MONEY:
                most = self.shape.largest_amount * UNITS
                drawn = self.rng.integers(-most, most, size=distinct).tolist()
                return self._some(EDGE_MONEY, map(to_text, drawn), distinct)
            case Kind.DATE:
                return self._some(EDGE_DATES, map(str, self._days(distinct)), distinct)
            case Kind.INSTANT:
                seconds = self.rng.integers(0, _DAY_SECONDS, size=distinct)
                instants = self._days(distinct).astype("datetime64[s]") + seconds
                return self._some(EDGE_INSTANTS, (str(each).replace("T", " ") for each in instants), distinct)
            case Kind.BOOLEAN:
                return self._some(BOOLEANS, (), distinct)
        raise AssertionError(f"{column.name}: ids and counts are drawn with their table")

    def _texts(self, texts: Texts, column: Column, distinct: int) -> pa.Array:
        return pa.array([wild_name(texts, column.name, index) for index in range(distinct)], pa.string())

    def _days(self, count: int) -> NDArray[np.datetime64]:
        return _FIRST_DAY + self.rng.integers(0, _DAYS, size=count)

    def _some(self, edges: Sequence[str], others: Iterable[str], count: int) -> pa.Array:
        """All edges if there is room for them, and others after them."""
        first = [edges[place] for place in self.rng.permutation(len(edges))[:count]]
        return pa.array([*first, *others][:count], pa.string())
