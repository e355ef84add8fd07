"""What the bounds of columns tell about the conditions that their rows meet."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.plans import Condition, Conditions

Interval = tuple[int, int]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = 1_000_000


def rows_meeting(
    conditions: Conditions, bounds: Mapping[str, Interval], parameters: Parameters, rows: int
) -> int | None:
    """How many of the rows of a chunk meet all conditions: all, none, or None if the bounds do not tell."""
    verdicts = [_verdict(condition, bounds, parameters) for condition in conditions]
    if False in verdicts:
        return 0
    return None if None in verdicts else rows


def _verdict(condition: Condition, bounds: Mapping[str, Interval], parameters: Parameters) -> bool | None:
    """Whether all rows meet the condition, or none does."""
    if condition == "@year" and "created_at" in bounds:
        begin, end = (_microseconds(moment) for moment in (parameters.begin, parameters.end))
        first, last = bounds["created_at"]
        if begin <= first and last < end:
            return True
        return False if last < begin or end <= first else None
    if condition == "@amount" and "final_amount" in bounds:
        least, greatest = bounds["final_amount"]
        if least >= parameters.min_units:
            return True
        return False if greatest < parameters.min_units else None
    return None


def _microseconds(moment: datetime) -> int:
    return int((moment - _EPOCH).total_seconds()) * _MICROSECONDS
