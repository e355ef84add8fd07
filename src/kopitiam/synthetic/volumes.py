"""How many rows each month gets: the real chain's totals, scaled, and spread over its two years."""

import math
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kopitiam.contracts.errors import ConfigError

MAX_SCALE = 10.0
MOST_ITEMS = 4  # rows of items in one transaction

FIRST_YEAR, FIRST_MONTH, MONTHS = 2023, 7, 24
TRANSACTIONS, ITEMS, USERS = 14_600_000, 29_000_000, 2_200_000
FIRST_REGISTRATIONS, GROWTH, MOST_REGISTRATIONS = 580, 1.64, 153_000


@dataclass(frozen=True)
class Month:
    """One month of the chain and the rows it is to have."""

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
    if not (math.isfinite(scale) and 0 < scale <= MAX_SCALE):
        raise ConfigError(f"scale {scale}: want more than 0 and at most {MAX_SCALE:g}")
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
    """The total cut in proportion to the weights, exactly, with at least one for each."""
    total = max(total, len(weights))
    bounds = [total * weight // sum(weights) for weight in accumulate(weights, initial=0)]
    parts = [end - begin for begin, end in pairwise(bounds)]
    while 0 in parts:
        parts[parts.index(0)] += 1
        parts[parts.index(max(parts))] -= 1
    return parts
