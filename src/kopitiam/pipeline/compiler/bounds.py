"""Conclusions from the least and greatest value of each column: how many rows of a chunk meet conditions,
whether rows may share groups, and whether arithmetic over them fits into 64 bits.

Real amounts are far below that limit. A part with larger ones is computed in 38 digits, which takes several
times as long.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kopitiam.contracts.money import UNITS
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import (
    Arithmetic,
    AsMoney,
    Case,
    ColumnRef,
    Constant,
    Expression,
    nodes,
)
from kopitiam.questions.plans import Condition, Conditions, PartialPlan

Interval = tuple[int, int]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = 1_000_000
LARGEST = 2**63 - 1
_SMALL = (0, 9999)  # years, hours and other numbers of functions


def rows_meeting(
    conditions: Conditions, bounds: Mapping[str, Interval], parameters: Parameters, rows: int
) -> int | None:
    """How many of the rows meet all conditions: `rows`, 0, or None if the bounds do not decide it."""
    verdicts = [_verdict(condition, bounds, parameters) for condition in conditions]
    if False in verdicts:
        return 0
    return None if None in verdicts else rows


def _verdict(condition: Condition, bounds: Mapping[str, Interval], parameters: Parameters) -> bool | None:
    """True if all rows meet the condition, False if none does, None if the bounds do not tell."""
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


def may_share_groups(plan: PartialPlan, bounds: Mapping[str, Interval | None], rows: int) -> bool:
    """Whether grouping this many rows may make much fewer of them. False if the kept values have at least as
    many combinations as there are rows: customers of stores, for example."""
    combinations = 1
    for value in plan.kept:
        interval = bounds.get(value.name) if isinstance(value, ColumnRef) else None
        if interval is not None:
            least, greatest = interval
            unit = _MICROSECONDS if value.kind is Kind.INSTANT else 1
            combinations *= (greatest - least) // unit + 1
    return combinations < rows


def joined(of_chunks: Sequence[Mapping[str, Interval]]) -> dict[str, Interval]:
    """The bounds of several chunks together; none of a column whose bounds are not known in each of them."""
    columns = set.intersection(*(set(bounds) for bounds in of_chunks)) if of_chunks else set()
    return {
        column: (
            min(bounds[column][0] for bounds in of_chunks),
            max(bounds[column][1] for bounds in of_chunks),
        )
        for column in columns
    }


def needs_wide(plan: PartialPlan, bounds: Mapping[str, Interval | None], rows: int) -> bool:
    """Whether the plan needs 38 digits for this many rows; `bounds` are None where they are not known."""
    computed = [node for expression in _expressions(plan) for node in nodes(expression)]
    arithmetic = [node for node in computed if isinstance(node, Arithmetic | AsMoney)]
    sums = [
        aggregate.argument
        for aggregate in plan.aggregates
        if aggregate.aggregation == "sum" and aggregate.argument
    ]
    return any(_size(node, bounds) > LARGEST for node in arithmetic) or any(
        _size(argument, bounds) * rows > LARGEST for argument in sums
    )


def _expressions(plan: PartialPlan) -> Iterable[Expression]:
    yield from (condition for condition in plan.conditions if not isinstance(condition, str))
    yield from plan.kept
    yield from (aggregate.argument for aggregate in plan.aggregates if aggregate.argument is not None)


def _size(expression: Expression, bounds: Mapping[str, Interval | None]) -> int:
    low, high = _interval(expression, bounds)
    return max(abs(low), abs(high))


def _interval(expression: Expression, bounds: Mapping[str, Interval | None]) -> Interval:
    match expression:
        case ColumnRef(name=name):
            return bounds.get(name) or (-LARGEST, LARGEST)
        case Constant(value=int(value)) if expression.kind is not Kind.BOOLEAN:
            return value, value
        case AsMoney(argument):
            low, high = _interval(argument, bounds)
            return low * UNITS, high * UNITS
        case Arithmetic(operator, left, right):
            return _combined(operator, _interval(left, bounds), _interval(right, bounds))
        case Case(branches, default):
            values = [value for _, value in branches] + ([default] if default else [])
            intervals = [_interval(value, bounds) for value in values]
            return min(low for low, _ in intervals), max(high for _, high in intervals)
    return _SMALL


def _combined(operator: str, left: Interval, right: Interval) -> Interval:
    match operator:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
    products = [a * b for a in left for b in right]
    return min(products), max(products)
