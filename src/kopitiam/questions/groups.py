"""Estimates how many groups the keys of a question can make, from its definition and the run's years.

Functions of time, conditions and cases of constants have a known number of values. Ids, texts and amounts do
not, and count as one. The bound protects memory: a partial has a row for each group, and for each value that
`count(distinct …)` counts in it.
"""

from collections.abc import Iterable
from datetime import date, datetime
from math import prod

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definition_errors import DefinitionError
from kopitiam.questions.definitions import Question
from kopitiam.questions.expressions import (
    Arithmetic,
    AsMoney,
    Call,
    Case,
    ColumnRef,
    Comparison,
    Constant,
    Expression,
    Function,
    In,
    Junction,
)

MAX_GROUPS = 10_000_000
SECONDS_PER_DAY = 86_400
_TRUTHS = 3  # true, false and unknown
_EVER = (date.min, date.max)
_OF_CLOCK: dict[str, int] = {"hour": 24, "minute": 60}
_OF_CALENDAR: dict[str, int] = {"quarter": 4, "month": 12, "day": 31, "dayofweek": 7}
_PER_YEAR: dict[str, int] = {"year": 1, "year_half": 2, "year_quarter": 4, "year_month": 12, "iso_week": 54}

Span = tuple[date, date]  # from the first day to the last, both included


def require_few_groups(question: Question, parameters: Parameters, most: int = MAX_GROUPS) -> None:
    """Raises DefinitionError if the keys can make more than `most` groups."""
    if question.lists_rows:
        return
    groups = count_groups(question, parameters)
    if groups > most:
        is_bounded = _days(question, parameters) != _EVER
        advice = "group by a coarser time" if is_bounded else 'add "@year" to where, group by a coarser time'
        raise DefinitionError(
            "by",
            f"the keys can make {groups:,} groups; at most {most:,} are kept; {advice}, "
            "or raise the setting questions.max_groups",
        )


def count_groups(question: Question, parameters: Parameters) -> int:
    """The largest number of groups of a partial, if keys with unknown values had one value each."""
    span = _days(question, parameters)
    times: dict[Function | None, None] = {}  # functions of the time of a row; None is the time itself
    others: dict[Expression, int] = {}
    for key in question.kept:
        _collect(key, times, others)
    return prod(others.values()) * _count_times(times, span)


def _collect(key: Expression, times: dict[Function | None, None], others: dict[Expression, int]) -> None:
    """Adds what the values of a key depend on to `times` or `others`."""
    match key:
        case ColumnRef(kind=Kind.INSTANT):
            times[None] = None
        case Call(function, ColumnRef()):
            times[function] = None
        case Arithmetic(_, left, right):
            _collect(left, times, others)
            _collect(right, times, others)
        case AsMoney(argument):
            _collect(argument, times, others)
        case Case(branches, default):
            values = {value for _, value in branches} | ({default} if default else set())
            if all(isinstance(value, Constant) for value in values):
                others[key] = len(values) + (default is None)
            for value in values:
                _collect(value, times, others)
        case Call(function):
            others[key] = _count_values(function, _EVER) + 1
        case _ if key.kind is Kind.BOOLEAN:
            others[key] = _TRUTHS


def _count_times(functions: Iterable[Function | None], span: Span) -> int:
    """The number of combinations of functions of one time, at most the days times the times of a day."""
    functions = list(functions)
    days = (span[1] - span[0]).days + 1
    if None in functions:
        return days * SECONDS_PER_DAY
    of_day = prod(_count_values(f, span) for f in functions if f is not None and f not in _OF_CLOCK)
    of_clock = prod(_OF_CLOCK[f] for f in functions if f is not None and f in _OF_CLOCK)
    return min(of_day, days) * of_clock


def _count_values(function: Function, span: Span) -> int:
    if function == "date":
        return (span[1] - span[0]).days + 1
    if function in _PER_YEAR:
        return _PER_YEAR[function] * (span[1].year - span[0].year + 1)
    return _OF_CALENDAR.get(function) or _OF_CLOCK[function]


def _days(question: Question, parameters: Parameters) -> Span:
    """The days that pass the filters, as far as those compare the time of a row with constants."""
    first, last = _EVER
    for condition in question.filters:
        if condition == "@year":
            low, high = date(parameters.first_year, 1, 1), date(parameters.last_year, 12, 31)
        elif isinstance(condition, str):
            continue
        else:
            low, high = _days_passing(condition)
        first, last = max(first, low), min(last, high)
    return (first, last) if first <= last else (first, first)


def _days_passing(condition: Expression) -> Span:
    match condition:
        case Junction("and", left, right):
            (low, high), (least, most) = _days_passing(left), _days_passing(right)
            return max(low, least), min(high, most)
        case Comparison(relation, left, Constant() as limit):
            return _bounds(left, relation, limit)
        case In(argument, values):
            spans = [_bounds(argument, "=", value) for value in values]
            return min(low for low, _ in spans), max(high for _, high in spans)
    return _EVER


def _bounds(side: Expression, relation: str, limit: Constant) -> Span:
    match side, limit.value:
        case ColumnRef(kind=Kind.INSTANT), datetime() as instant:
            low = high = instant.date()
        case Call("date", ColumnRef(kind=Kind.INSTANT)), date() as day:
            low = high = day
        case Call("year", ColumnRef(kind=Kind.INSTANT)), int(year) if 1 <= year <= _EVER[1].year:
            low, high = date(year, 1, 1), date(year, 12, 31)
        case _:
            return _EVER
    match relation:
        case "=":
            return low, high
        case ">" | ">=":
            return low, _EVER[1]
        case "<" | "<=":
            return _EVER[0], high
    return _EVER
