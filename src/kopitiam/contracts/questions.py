"""The parameters of the four questions and the shape of their answers."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.money import to_units

SECONDS_PER_DAY = 86_400
MOST_CUSTOMERS = 100_000  # as many as Spark ranks without a sort
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)")


@dataclass(frozen=True)
class Questions:
    """What to ask: years and hours are inclusive on both ends, to the second."""

    first_year: int = 2024
    last_year: int = 2025
    opening: str = "06:00:00"
    closing: str = "23:00:00"
    min_amount: str = "75"
    top: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.first_year <= self.last_year <= 9998:
            raise ConfigError(f"years {self.first_year}-{self.last_year}: want first-last, such as 2024-2025")
        if self.opening_second > self.closing_second:
            raise ConfigError(f"hours {self.opening}-{self.closing}: the first must not be after the last")
        if not 1 <= self.top <= MOST_CUSTOMERS:
            raise ConfigError(f"top {self.top}: want 1 to {MOST_CUSTOMERS}")
        self.min_units  # noqa: B018 - refuses an amount that is not one

    @property
    def begin(self) -> datetime:
        return datetime(self.first_year, 1, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first instant that is too late."""
        return datetime(self.last_year + 1, 1, 1, tzinfo=UTC)

    @property
    def opening_second(self) -> int:
        return _second_of_day(self.opening)

    @property
    def closing_second(self) -> int:
        return _second_of_day(self.closing)

    @property
    def min_units(self) -> int:
        try:
            return to_units(self.min_amount)
        except ValueError as error:
            raise ConfigError(f"minimum amount: {error}") from None

    @classmethod
    def from_dict(cls, asked: dict[str, Any]) -> "Questions":
        (first_year, last_year), (opening, closing) = asked["years"], asked["hours"]
        return cls(first_year, last_year, opening, closing, asked["min_amount"], asked["top"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "years": [self.first_year, self.last_year],
            "hours": [self.opening, self.closing],
            "min_amount": self.min_amount,
            "top": self.top,
        }


def _second_of_day(clock: str) -> int:
    if not (match := _CLOCK.fullmatch(clock)):
        raise ConfigError(f"hour {clock!r}: want HH:MM:SS, such as 23:00:00")
    hours, minutes, seconds = map(int, match.groups())
    return hours * 3600 + minutes * 60 + seconds


@dataclass(frozen=True)
class Answer:
    """One answer file: the columns that the reference CSV has."""

    name: str
    title: str
    columns: tuple[str, ...]

    @property
    def csv_name(self) -> str:
        return f"results_query_{self.name}.csv"


ANSWERS: dict[str, Answer] = {
    answer.name: answer
    for answer in (
        Answer("1", "Large purchases in opening hours", ("transaction_id", "final_amount")),
        Answer(
            "2_1", "Best-selling product per month", ("year_month_created_at", "item_name", "sellings_qty")
        ),
        Answer(
            "2_2", "Most profitable product per month", ("year_month_created_at", "item_name", "profit_sum")
        ),
        Answer(
            "3", "Total payment value per half-year and store", ("year_half_created_at", "store_name", "tpv")
        ),
        Answer("4", "Customers with most purchases per store", ("store_name", "birthdate")),
    )
}
