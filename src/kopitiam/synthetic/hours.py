"""When things happen: in opening hours like the real ones, and right on the bounds of the questions."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.synthetic.volumes import Month

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
    """Seconds since the month began, unordered, inside opening hours."""
    weights = np.array(HOUR_WEIGHTS) / sum(HOUR_WEIGHTS)
    hour = OPENING_HOUR + rng.choice(len(HOUR_WEIGHTS), size=rows, p=weights)
    day = rng.integers(0, month.days, size=rows)
    return np.asarray(day * DAY + hour * HOUR + rng.integers(0, HOUR, size=rows), dtype=np.int64)


def sale_seconds(rng: Generator, month: Month) -> NDArray[np.int64]:
    """One second of the month for each transaction, in order of time."""
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
    """Seconds since 1970 at the month's first midnight."""
    return int(np.datetime64(f"{month.year}-{month.month:02d}-01", "s").astype(np.int64))


def _bounds(rng: Generator, month: Month) -> NDArray[np.int64]:
    per_clock = max(1, round(month.transactions * BOUND_SHARE / len(BOUND_CLOCKS)))
    clocks = np.repeat(np.array(BOUND_CLOCKS, dtype=np.int64), per_clock)
    days = rng.integers(0, month.days, size=len(clocks))
    half_bounds = np.array(_half_year_bounds(month), dtype=np.int64)
    per_half_bound = 1 + month.transactions // ROWS_PER_HALF_BOUND
    return np.concatenate([days * DAY + clocks, np.repeat(half_bounds, per_half_bound)])


def _half_year_bounds(month: Month) -> list[int]:
    """A half-year (and so a year) begins or ends in this month: the seconds next to that midnight."""
    if month.month in (1, 7):
        return list(FIRST_DAY_OF_HALF)
    if month.month in (6, 12):
        return [(month.days - 1) * DAY + clock for clock in LAST_DAY_OF_HALF]
    return []
