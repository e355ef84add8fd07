"""The parameters of a run: years, hours, minimum amount, and the size of a top list."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.money import to_units

SECONDS_PER_DAY = 86_400
MAX_TOP = 100_000  # Spark ranks that many without a sort
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)")


@dataclass(frozen=True)
class Parameters:
    """Years and hours are inclusive on both ends, to the second. Raises `ConfigError` for a wrong value."""

    first_year: int = 2024
    last_year: int = 2025
    opening: str = "06:00:00"
    closing: str = "23:00:00"
    min_amount: str = "75"
    top: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.first_year <= self.last_year <= 9998:
            raise ConfigError(
                f"years {self.first_year}-{self.last_year}: expected first-last, such as 2024-2025"
            )
        if self.opening_second > self.closing_second:
            raise ConfigError(f"hours {self.opening}-{self.closing}: the first must not be after the last")
        if not 1 <= self.top <= MAX_TOP:
            raise ConfigError(f"top {self.top}: expected 1 to {MAX_TOP}")
        self.min_units  # noqa: B018 - raises for a wrong amount

    @property
    def begin(self) -> datetime:
        return datetime(self.first_year, 1, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first instant after the last year."""
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
    def from_dict(cls, values: Mapping[str, Any]) -> "Parameters":
        """Read the form of `to_dict`; missing values have their defaults."""
        full = {**cls().to_dict(), **values}
        (first_year, last_year), (opening, closing) = full["years"], full["hours"]
        return cls(first_year, last_year, opening, closing, full["min_amount"], full["top"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "years": [self.first_year, self.last_year],
            "hours": [self.opening, self.closing],
            "min_amount": self.min_amount,
            "top": self.top,
        }


def _second_of_day(clock: str) -> int:
    if not (match := _CLOCK.fullmatch(clock)):
        raise ConfigError(f"hour {clock!r}: expected HH:MM:SS, such as 23:00:00")
    hours, minutes, seconds = map(int, match.groups())
    return hours * 3600 + minutes * 60 + seconds
