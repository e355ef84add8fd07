"""Cells of the profile `wild`: texts that are hard to quote, sort or show, and the edge values of each kind.

`WildCells` draws the columns that the catalog's questions do not read; `wild` draws the others. All cells are
valid.
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

LONGEST_TEXT = 1_024  # characters, the bound of a text cell

HOSTILE = (
    "=1+1",
    "+SUM(A1:A9)",
    "-2+3",
    "@cmd",
    '=HYPERLINK("http://localhost","click")',
    'He said "kopi"',
    '"',
    '""',
    "comma, here",
    "two\nlines",
    "two\r\nlines",
    "ends with a newline\n",
    " blanks around ",
    "\ttab\tstop\t",
    "'quoted'",
    "back\\slash\\",
    "NULL",
    "null",
    "NaN",
    "0",
    "1.0",
    "10:00:00",
    "\N{RIGHT-TO-LEFT OVERRIDE}repo\N{POP DIRECTIONAL FORMATTING}",
    "\N{RIGHT-TO-LEFT MARK}كوبي\N{LEFT-TO-RIGHT MARK}",
    "קפה",
    "咖啡店",
    "コピティアム",
    "☕\N{ZERO WIDTH JOINER}🥐",
    "e\N{COMBINING ACUTE ACCENT}",
    "é",
    "\N{ZERO WIDTH NO-BREAK SPACE}mark first",
    "\N{LINE SEPARATOR}\N{NO-BREAK SPACE}",
    "\x1b[31mred\x1b[0m\a\b\x7f",
    "<script>alert('kopi')</script>&amp;",
    "{{ 7 * 7 }} %s ${HOME} `id`",
    "; DROP TABLE stores; --",
    "../../etc/passwd",
    "\N{MATHEMATICAL BOLD CAPITAL K}" * LONGEST_TEXT,  # four bytes each
    '"' * LONGEST_TEXT,  # twice as long when quoted
    "\n" * LONGEST_TEXT,
    "-" * LONGEST_TEXT,
)
_LONG_EVERY = 10  # keeps 10,000 names below 2 MB
_IDS_PER_NAME = 2


def wild_name(texts: Texts, kind: str, index: int) -> str:
    """Return the name of a record; plain names are shared by two records, so that names tie."""
    plain = f"{kind} {index // _IDS_PER_NAME}"
    match texts:
        case Texts.PLAIN:
            return plain
        case Texts.LONG:
            return _long(plain) if index % _LONG_EVERY == 0 else plain
        case Texts.HOSTILE:
            turn, place = divmod(index, len(HOSTILE))
            return (HOSTILE[place] + (f" {turn}" if turn else ""))[:LONGEST_TEXT]


def transaction_id(texts: Texts, index: int) -> str | None:
    """Return a text to use instead of a UUID, or None, which is the usual case."""
    every = 100 if texts is Texts.LONG else 4
    if texts is Texts.PLAIN or index % every:
        return None
    return wild_name(texts, "sale", index // every)


def _long(plain: str) -> str:
    return plain + " " + "é" * (LONGEST_TEXT - len(plain) - 1)


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
    """Draws cells from `rng` according to a shape."""

    shape: WildShape
    rng: Generator

    def draw(self, column: Column, rows: int, wild_share: float = 1.0) -> pa.Array:
        """Return a cell for each row, spelled as in an export; null is an empty cell.

        Only `wild_share` of the texts is long or hostile, to bound the size of large tables.
        """
        pool = self._pool(column, min(self.shape.variety, max(rows, 1)))
        places = self.rng.permutation(np.arange(rows) % len(pool))  # all values are equally frequent
        if column.kind is Kind.TEXT:
            plain = self._texts(Texts.PLAIN, column, len(pool))
            is_plain = self.rng.random(rows) >= wild_share
            pool, places = pa.concat_arrays([pool, plain]), places + len(pool) * is_plain
        return pool.take(pa.array(places, mask=self.empty(rows)))

    def empty(self, rows: int) -> Flags:
        """Draw a mask of empty cells for an optional column."""
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
                return self._some(
                    EDGE_INSTANTS, (str(instant).replace("T", " ") for instant in instants), distinct
                )
            case Kind.BOOLEAN:
                return self._some(BOOLEANS, (), distinct)
        raise AssertionError(f"{column.name}: `wild` draws ids and counts")

    def _texts(self, texts: Texts, column: Column, distinct: int) -> pa.Array:
        return pa.array([wild_name(texts, column.name, index) for index in range(distinct)], pa.string())

    def _days(self, count: int) -> NDArray[np.datetime64]:
        return _FIRST_DAY + self.rng.integers(0, _DAYS, size=count)

    def _some(self, edges: Sequence[str], others: Iterable[str], count: int) -> pa.Array:
        """Return edge values in random order, then others, `count` in total."""
        first = [edges[place] for place in self.rng.permutation(len(edges))[:count]]
        return pa.array([*first, *others][:count], pa.string())
