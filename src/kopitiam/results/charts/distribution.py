"""Q1 in figures: it may have a row for every sale of years, so that only its shape is shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.contracts.money import DIGITS, UNITS, to_text
from kopitiam.results.reading import Answers

MOST_BINS = 20
LARGEST = 10
_IN_SHAPE = 0.99  # of the rows decide the width of the bins; the few beyond share the last one
_STEPS = (1, 2, 5)
_PLAIN_WIDTH = UNITS  # of the one bin that equal amounts have

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bin:
    """From `first` to below `beyond`, both in units of money; an open one has all from `first` on."""

    first: int
    beyond: int
    count: int
    is_open: bool = False


@dataclass(frozen=True)
class Distribution:
    """Amounts as plain text, exact; None where there is no row."""

    count: int
    total: str
    least: str | None
    median: str | None
    largest: str | None
    bins: tuple[Bin, ...]
    largest_rows: tuple[tuple[str, str], ...]  # transaction_id and amount


def distribution(answers: Answers) -> Distribution:
    counted: list[pa.Table] = []
    largest = answers.schema("1").empty_table()
    for batch in answers.batches("1"):
        counted.append(_counted(batch["final_amount"]))
        largest = _largest(pa.concat_tables([largest, pa.Table.from_batches([batch])]))
    amounts, counts = _merged(counted)
    rows = tuple((row["transaction_id"], f"{row['final_amount']:f}") for row in largest.to_pylist())
    if not len(amounts):
        return Distribution(0, "0.0", None, None, None, (), rows)
    upto = np.cumsum(counts)
    count = int(upto[-1])
    total = sum(a * c for a, c in zip(_ints(amounts), _ints(counts), strict=True))
    middle = amounts[np.searchsorted(upto, (count + 1) // 2)]
    bins = tuple(_bins(amounts, counts, amounts[np.searchsorted(upto, _IN_SHAPE * count)]))
    least, median, most = (to_text(int(amount)) for amount in (amounts[0], middle, amounts[-1]))
    return Distribution(count, to_text(total), least, median, most, bins, rows)


def _counted(amounts: pa.Array) -> pa.Table:
    found = pc.value_counts(amounts)
    in_units = pc.multiply(found.field("values"), pa.scalar(Decimal(UNITS), pa.decimal128(5, 0)))
    return pa.table(
        {
            "amount": in_units.cast(pa.decimal128(DIGITS + 6, 0)).cast(pa.int64()),
            "count": found.field("counts"),
        }
    )


def _merged(counted: list[pa.Table]) -> tuple[Counts, Counts]:
    """Distinct amounts, ascending, and how often each is there."""
    if not counted:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    table = pa.concat_tables(counted).group_by("amount").aggregate([("count", "sum")]).sort_by("amount")
    return table["amount"].to_numpy(), table["count_sum"].to_numpy()


def _largest(rows: pa.Table) -> pa.Table:
    order: list[Any] = [("final_amount", "descending"), ("transaction_id", "ascending")]
    return rows.take(pc.select_k_unstable(rows, LARGEST, order))


def _bins(amounts: Counts, counts: Counts, shape_end: np.int64) -> Iterator[Bin]:
    """Of the least round width that gives no more than MOST_BINS."""
    width, begin = _width(int(amounts[0]), int(shape_end))
    last = (int(shape_end) - begin) // width
    numbers = np.minimum((amounts - begin) // width, last)
    found = np.zeros(last + 1, np.int64)
    np.add.at(found, numbers, counts)
    for number, count in enumerate(_ints(found)):
        first = begin + number * width
        is_open = number == last and int(amounts[-1]) >= first + width
        yield Bin(first, first + width, count, is_open)


def _width(least: int, most: int) -> tuple[int, int]:
    """And where the first bin begins, at a multiple of it."""
    if least == most:
        return _PLAIN_WIDTH, least - least % _PLAIN_WIDTH
    scale = 1
    while True:
        for width in (step * scale for step in _STEPS):
            begin = least - least % width
            if (most - begin) // width < MOST_BINS:
                return width, begin
        scale *= 10


def _ints(array: Counts) -> list[int]:
    return [int(number) for number in array]
