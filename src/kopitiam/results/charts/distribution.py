"""The distribution of the figures of a column: exact, in bounded memory for any number of rows.

The column is read several times: once for the sum and the bounds, then until the median is known, then for
the bins. Figures are whole units: ten-thousandths of money and ratios, or counts as they are.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.money import UNITS, to_text
from kopitiam.contracts.tables import Kind
from kopitiam.results.answers import Answers

MOST_BINS = 20
LARGEST = 10
_IN_SHAPE = 99  # percent of rows that decide the width of bins; the rest shares the last one
_STEPS = (1, 2, 5)
_BUCKETS = 4_096
_MOST_IN_INT64 = 2**62  # the difference of two such figures is still a 64-bit integer

Units = npt.NDArray[Any]  # of 64-bit integers; of Python's where the column may have larger ones
Row = dict[str, Any]


@dataclass(frozen=True)
class Bin:
    """Figures from `first` to below `beyond`, in units; an open bin has no upper bound."""

    first: int
    beyond: int
    count: int
    is_open: bool = False


@dataclass(frozen=True)
class Distribution:
    """Figures as exact plain text; None if no row has a figure."""

    column: str
    kind: Kind
    count: int
    missing: int  # rows without a figure
    total: str
    least: str | None
    median: str | None
    largest: str | None
    bins: tuple[Bin, ...]
    largest_rows: tuple[Row, ...]


def units_text(kind: Kind, units: int) -> str:
    """Units as plain text: a count, or an amount with decimals."""
    return str(units) if kind is Kind.COUNT else to_text(units)


@dataclass
class _Bounds:
    count: int = 0
    missing: int = 0
    total: int = 0
    least: int = 0
    largest: int = 0

    def add(self, units: Units, missing: int) -> None:
        self.missing += missing
        if len(units):
            least, largest = int(units.min()), int(units.max())
            self.least = min(self.least, least) if self.count else least
            self.largest = max(self.largest, largest) if self.count else largest
            self.count += len(units)
            self.total += sum(map(int, units)) if units.dtype == object else _sum(units)


def distribution(answers: Answers, name: str, column: str) -> Distribution:
    """The distribution of a column of counts, money or ratios."""
    question = answers.question_set.by_name[name]
    kind = question.columns_by_name[column].kind
    bounds, largest = _Bounds(), answers.schema(name).empty_table()
    order = [(column, "descending"), *((key, "ascending") for key in question.sort_columns)]
    for batch in answers.batches(name):
        bounds.add(_units(batch[column]), batch[column].null_count)
        largest = _first(pa.concat_tables([largest, pa.Table.from_batches([batch])]), order)
    rows = tuple(row for row in largest.to_pylist() if row[column] is not None)
    if not bounds.count:
        return Distribution(column, kind, 0, bounds.missing, units_text(kind, 0), None, None, None, (), rows)
    is_large = max(-bounds.least, bounds.largest) >= _MOST_IN_INT64
    read = partial(_columns, answers, name, column, is_large)
    shape = -(-bounds.count * _IN_SHAPE // 100)
    median, end = (_at_place(read, bounds, place) for place in ((bounds.count + 1) // 2, shape))
    text = partial(units_text, kind)
    return Distribution(
        column,
        kind,
        bounds.count,
        bounds.missing,
        text(bounds.total),
        text(bounds.least),
        text(median),
        text(bounds.largest),
        tuple(_bins(read, bounds, end, 1 if kind is Kind.COUNT else UNITS)),
        rows,
    )


def _columns(answers: Answers, name: str, column: str, is_large: bool) -> Iterator[Units]:
    for batch in answers.batches(name, [column]):
        yield _units(batch[column], is_large)


def _units(column: pa.Array, is_large: bool = False) -> Units:
    """The figures that are not null, in units; as Python integers if some are large."""
    units = column.drop_null()
    if pa.types.is_decimal(units.type):
        whole = pa.decimal128(units.type.precision, 0)
        units = pa.Array.from_buffers(whole, len(units), units.buffers(), units.null_count, units.offset)
    ends = pc.min_max(units).as_py()
    if is_large or any(end is not None and abs(end) >= _MOST_IN_INT64 for end in ends.values()):
        return np.array([int(value) for value in units.to_pylist()], dtype=object)
    integers: Units = units.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return integers


def _sum(units: Units) -> int:
    """The exact sum: halves of 32 bits do not overflow in a batch."""
    return (int((units >> 32).sum()) << 32) + int((units & 0xFFFFFFFF).sum())


def _first(rows: pa.Table, order: list[tuple[str, str]]) -> pa.Table:
    return rows.take(pc.sort_indices(rows, order)[:LARGEST])


def _at_place(read: Any, bounds: _Bounds, place: int) -> int:
    """The figure at this place in ascending order. Each pass narrows it down to one of 4,096 buckets."""
    low, high = bounds.least, bounds.largest
    while low < high:
        width = -(-(high - low + 1) // _BUCKETS)
        counts: Counter[int] = Counter()
        below = 0
        for units in read():
            below += int((units < low).sum())
            counts.update(_counted((units[(units >= low) & (units <= high)] - low) // width))
        for bucket in sorted(counts):
            if below + counts[bucket] >= place:
                break
            below += counts[bucket]
        low, high = low + bucket * width, min(high, low + (bucket + 1) * width - 1)
    return low


def _counted(numbers: Units) -> dict[int, int]:
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(map(int, values), map(int, counts), strict=True))


def _bins(read: Any, bounds: _Bounds, shape_end: int, plain_width: int) -> Iterator[Bin]:
    """Bins of the least round width that gives at most MOST_BINS."""
    width, begin = round_width(bounds.least, shape_end, plain_width, MOST_BINS)
    last = (shape_end - begin) // width
    counts: Counter[int] = Counter()
    for units in read():
        counts.update(_counted(np.minimum((units - begin) // width, last)))
    for number in range(last + 1):
        first = begin + number * width
        is_open = number == last and bounds.largest >= first + width
        yield Bin(first, first + width, counts[number], is_open)


def round_width(least: int, most: int, plain: int, bins: int) -> tuple[int, int]:
    """The least round width of at most `bins` bins, and the begin of the first one.

    The begin is a multiple of the width. Equal figures have one bin of the `plain` width.
    """
    if least == most:
        return plain, least - least % plain
    scale = 1
    while True:
        for width in (step * scale for step in _STEPS):
            begin = least - least % width
            if (most - begin) // width < bins:
                return width, begin
        scale *= 10
