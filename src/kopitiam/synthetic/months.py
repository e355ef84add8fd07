"""The months of the generated data: how many rows each one has, and at which seconds.

Totals are those of the real chain, scaled and spread over its two years. Times are in opening hours, and some
are exactly on the bounds of the catalog's questions.
"""

import math
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.contracts.errors import ConfigError

MAX_SCALE = 10.0
MOST_ITEMS = 4  # rows of items in one transaction

FIRST_YEAR, FIRST_MONTH, MONTHS = 2023, 7, 24
TRANSACTIONS, ITEMS, USERS = 14_600_000, 29_000_000, 2_200_000
FIRST_REGISTRATIONS, GROWTH, MOST_REGISTRATIONS = 580, 1.64, 153_000


@dataclass(frozen=True)
class Month:
    """One month and its row counts."""

    index: int
    year: int
    month: int
    transactions: int
    items: int
    users: int
    users_before: int

    @property
    def label(self) -> str:
        return f"{self.year}{self.month:02d}"

    @property
    def days(self) -> int:
        return monthrange(self.year, self.month)[1]

    @property
    def progress(self) -> float:
        """0 in the first month, 1 in the last."""
        return self.index / (MONTHS - 1)


def plan(scale: float) -> list[Month]:
    """Return all months with their row counts. Raises ConfigError if the scale is out of range."""
    """Return all months with their row counts. Raises ConfigError if the scale is out of range."""
    if not (math.isfinite(scale) and 0 < scale <= MAX_SCALE):
        raise ConfigError(f"scale {scale}: expected more than 0 and at most {MAX_SCALE:g}")
    calendar = [divmod(FIRST_YEAR * 12 + FIRST_MONTH - 1 + index, 12) for index in range(MONTHS)]
    days = [monthrange(year, month + 1)[1] for year, month in calendar]
    transactions = _spread(round(TRANSACTIONS * scale), days)
    items = _spread(round(ITEMS * scale), days)
    users = _spread(round(USERS * scale), _registrations())
    return [
        Month(
            index,
            year,
            month + 1,
            transactions[index],
            min(max(items[index], transactions[index]), MOST_ITEMS * transactions[index]),
            users[index],
            sum(users[:index]),
        )
        for index, (year, month) in enumerate(calendar)
    ]


def _registrations() -> list[int]:
    return [min(int(FIRST_REGISTRATIONS * GROWTH**index), MOST_REGISTRATIONS) for index in range(MONTHS)]


def _spread(total: int, weights: Sequence[int]) -> list[int]:
    """Split the total in proportion to the weights; each part is at least one."""
    total = max(total, len(weights))
    bounds = [total * weight // sum(weights) for weight in accumulate(weights, initial=0)]
    parts = [end - begin for begin, end in pairwise(bounds)]
    while 0 in parts:
        parts[parts.index(0)] += 1
        parts[parts.index(max(parts))] -= 1
    return parts


DAY, HOUR, MINUTE = 86_400, 3_600, 60
OPENING_HOUR, CLOSING_HOUR = 7, 23
HOUR_WEIGHTS = (2, 4, 6, 9, 10, 12, 11, 9, 8, 7, 6, 5, 4, 3, 2, 2)  # 07 to 22, most at noon

BOUND_CLOCKS = (6 * HOUR - 1, 6 * HOUR, 23 * HOUR, 23 * HOUR + 1)
FIRST_DAY_OF_HALF = (0, 6 * HOUR)
LAST_DAY_OF_HALF = (22 * HOUR + 30 * MINUTE, 23 * HOUR - 1, DAY - 1)
BOUND_SHARE = 0.0005
FEWEST_ROWS_FOR_BOUNDS = 20
ROWS_PER_HALF_BOUND = 100_000


def opening_seconds(rng: Generator, month: Month, rows: int) -> NDArray[np.int64]:
    """Draw seconds since the start of the month, within opening hours, in no order."""
    weights = np.array(HOUR_WEIGHTS) / sum(HOUR_WEIGHTS)
    hour = OPENING_HOUR + rng.choice(len(HOUR_WEIGHTS), size=rows, p=weights)
    day = rng.integers(0, month.days, size=rows)
    return np.asarray(day * DAY + hour * HOUR + rng.integers(0, HOUR, size=rows), dtype=np.int64)


def sale_seconds(rng: Generator, month: Month) -> NDArray[np.int64]:
    """Draw the second of each transaction since the start of the month, in order of time."""
    seconds = opening_seconds(rng, month, month.transactions)
    if month.transactions >= FEWEST_ROWS_FOR_BOUNDS:
        bounds = _bounds(rng, month)
        seconds[: len(bounds)] = bounds
    seconds.sort()
    return seconds


def is_outside_opening_hours(seconds: NDArray[np.int64]) -> NDArray[np.bool_]:
    clock = seconds % DAY
    return (clock < OPENING_HOUR * HOUR) | (clock >= CLOSING_HOUR * HOUR)


def month_start(month: Month) -> int:
    """Return the start of the month in seconds since 1970."""
    return int(np.datetime64(f"{month.year}-{month.month:02d}-01", "s").astype(np.int64))


def _bounds(rng: Generator, month: Month) -> NDArray[np.int64]:
    per_clock = max(1, round(month.transactions * BOUND_SHARE / len(BOUND_CLOCKS)))
    clocks = np.repeat(np.array(BOUND_CLOCKS, dtype=np.int64), per_clock)
    days = rng.integers(0, month.days, size=len(clocks))
    half_bounds = np.array(_half_year_bounds(month), dtype=np.int64)
    per_half_bound = 1 + month.transactions // ROWS_PER_HALF_BOUND
    return np.concatenate([days * DAY + clocks, np.repeat(half_bounds, per_half_bound)])


def _half_year_bounds(month: Month) -> list[int]:
    """Return the seconds next to the midnight at which a half-year begins or ends in this month, if any."""
    if month.month in (1, 7):
        return list(FIRST_DAY_OF_HALF)
    if month.month in (6, 12):
        return [(month.days - 1) * DAY + clock for clock in LAST_DAY_OF_HALF]
    return []
