"""Builds typed expressions: constants, arithmetic, comparisons, aggregates, ratios.

Each function returns a well-typed tree or raises QuestionError with the reason. `parsing` calls them.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import cast

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.money import DIGITS, UNITS, to_units
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS, Kind
from kopitiam.questions.expressions import (
    ADDABLE,
    Aggregate,
    Arithmetic,
    AsMoney,
    Call,
    Case,
    Comparison,
    Constant,
    Expression,
    Function,
    In,
    Operator,
    Ratio,
    Relation,
    nodes,
    parts_of,
)

MOST_VALUES = 1_000  # in one IN list
MOST_DIGITS = 17  # of a whole number, as in the cells of a file
WIDEST = 38  # digits that every engine computes exactly, money in ten-thousandths
_MOST_ROWS: int = 10**10  # in one sum
_LARGEST_SUM: int = 10**36
_LARGEST_KEPT: int = 2**63 - 1
_LARGEST_CALL: int = 9_999  # a year; other results of functions of time are smaller
PERIODS: tuple[Function, ...] = ("year_month", "year_half", "year_quarter", "iso_week")
_OF_INSTANTS_ONLY = frozenset({"hour", "minute"})
_WHOLE = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]*\.[0-9]+|[0-9]+\.")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def number(digits: str) -> Constant:
    """A whole or decimal literal."""
    if _WHOLE.fullmatch(digits):
        if len(digits) > MOST_DIGITS:
            raise QuestionError(f"{digits[:40]} has more than {MOST_DIGITS} digits")
        return Constant(int(digits), Kind.COUNT)
    if not _DECIMAL.fullmatch(digits):
        raise QuestionError(f"{digits[:40]} is a float; write a decimal such as 12.5")
    return Constant(_units(str(Decimal(digits))), Kind.MONEY)


def text(value: str) -> Constant:
    if len(value) > MAX_TEXT_CHARACTERS:
        raise QuestionError(
            f"a text has {len(value):,} characters; at most {MAX_TEXT_CHARACTERS:,} are allowed"
        )
    return Constant(value, Kind.TEXT)


def day(value: str) -> Constant:
    """A date literal."""
    try:
        if not _DATE.fullmatch(value):
            raise ValueError
        return Constant(date.fromisoformat(value), Kind.DATE)
    except ValueError:
        raise QuestionError(f"{value[:40]!r} is not a date like 2024-01-31") from None


def instant(value: str) -> Constant:
    """A time literal; a date is its midnight."""
    try:
        if not (_INSTANT.fullmatch(value) or _DATE.fullmatch(value)):
            raise ValueError
        return Constant(datetime.fromisoformat(value), Kind.INSTANT)
    except ValueError:
        raise QuestionError(f"{value[:40]!r} is not a time like 2024-01-31 22:59:59") from None


def negative(value: Expression) -> Expression:
    if isinstance(value, Constant) and value.kind in ADDABLE:
        return Constant(-cast(int, value.value), value.kind)
    return arithmetic("-", Constant(0, Kind.COUNT), value)


def arithmetic(operator: Operator, left: Expression, right: Expression) -> Expression:
    """A sum, difference or product that fits into WIDEST digits."""
    for side in (left, right):
        if any(isinstance(node, Ratio) for node in nodes(side)):
            raise QuestionError("a ratio is rounded at the very end, so nothing can be computed from it")
        if side.kind not in ADDABLE:
            raise QuestionError(f"{operator} takes counts and money, not {with_article(side.kind)}")
    if operator == "*":
        if left.kind is right.kind is Kind.MONEY:
            raise QuestionError("money times money has too many decimals; multiply money by a count")
        kind = Kind.MONEY if Kind.MONEY in (left.kind, right.kind) else Kind.COUNT
    else:
        kind = common_kind([left, right])
        left, right = as_kind(left, kind), as_kind(right, kind)
    result = Arithmetic(operator, left, right, kind)
    if (largest := _largest(result)) >= 10**WIDEST:
        raise QuestionError(f"can have {len(str(largest))} digits; at most {WIDEST} are computed exactly")
    return result


def require_kept(value: Expression) -> Expression:
    """Raises QuestionError unless the value fits into 64 bits, as values that partials store must."""
    if value.kind in ADDABLE and (largest := _largest(value)) > _LARGEST_KEPT:
        raise QuestionError(
            f"can have {len(str(largest))} digits; rows are grouped by values of at most 64 bits"
        )
    return value


def _largest(expression: Expression) -> int:  # noqa: PLR0911
    """The largest possible absolute value, money in ten-thousandths."""
    match expression:
        case Arithmetic("*", left, right):
            return _largest(left) * _largest(right)
        case Arithmetic(_, left, right):
            return _largest(left) + _largest(right)
        case AsMoney(argument):
            return _largest(argument) * int(UNITS)
        case Constant(value):
            return abs(cast(int, value))
        case Call():
            return _LARGEST_CALL
        case Case():
            return max(map(_largest, (part for part in parts_of(expression) if part.kind in ADDABLE)))
        case Aggregate("sum", argument) if argument is not None:
            return min(_largest(argument) * _MOST_ROWS, _LARGEST_SUM)
        case Aggregate("min" | "max", argument) if argument is not None:
            return _largest(argument)
        case Aggregate():
            return _MOST_ROWS
    return int(10**DIGITS if expression.kind is Kind.MONEY else 10**MOST_DIGITS)


def comparison(relation: Relation, left: Expression, right: Expression) -> Comparison:
    left, right = _alike(left, right)
    if left.kind is Kind.BOOLEAN and relation not in ("=", "<>"):
        raise QuestionError(f"true and false have no order; use = or <>, not {relation}")
    return Comparison(relation, left, right)


def _alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both sides in one kind; a constant takes the kind of the other side."""
    left, right = _adapted(left, right.kind), _adapted(right, left.kind)
    kind = common_kind([left, right])
    return as_kind(left, kind), as_kind(right, kind)


def _adapted(value: Expression, to: Kind) -> Expression:
    if not isinstance(value, Constant):
        return value
    match value.kind, to:
        case Kind.COUNT, Kind.ID if cast(int, value.value) >= 0:
            return Constant(value.value, Kind.ID)
        case Kind.TEXT, Kind.DATE:
            return day(cast(str, value.value))
        case Kind.TEXT, Kind.INSTANT:
            return instant(cast(str, value.value))
        case Kind.DATE, Kind.INSTANT:
            return instant(cast(date, value.value).isoformat())
    return value


def one_of(argument: Expression, values: Sequence[Expression]) -> In:
    """`argument in (values)`, with values of the kind of the argument."""
    if isinstance(argument, Constant):
        raise QuestionError("IN: expected a column or a function of one on the left")
    if not 1 <= len(values) <= MOST_VALUES:
        raise QuestionError(f"IN has {len(values):,} values; 1 to {MOST_VALUES:,} are allowed")
    if argument.kind is Kind.COUNT and any(value.kind is Kind.MONEY for value in values):
        argument = AsMoney(argument)
    constants = []
    for value in values:
        _, adapted = _alike(argument, value)
        if not isinstance(adapted, Constant):
            raise QuestionError("IN takes a list of constants")
        constants.append(adapted)
    return In(argument, tuple(constants))


def condition(value: Expression) -> Expression:
    """The value, if it is a condition."""
    if value.kind is not Kind.BOOLEAN:
        raise QuestionError(f"expected a condition, not {with_article(value.kind)}")
    return value


def case(conditions: Sequence[Expression], values: Sequence[Expression], default: Expression | None) -> Case:
    every = [*values, *([] if default is None else [default])]
    kind = common_kind(every)
    typed = [as_kind(value, kind) for value in every]
    branches = tuple(zip(map(condition, conditions), typed, strict=False))
    return Case(branches, None if default is None else typed[-1], kind)


def call(function: Function, argument: Expression) -> Expression:
    """A function of time."""
    kinds = {Kind.INSTANT} if function in _OF_INSTANTS_ONLY else {Kind.INSTANT, Kind.DATE}
    if argument.kind not in kinds:
        times = " or ".join(sorted(kind.value for kind in kinds))
        raise QuestionError(f"{function} takes {_article(times)} {times}, not {with_article(argument.kind)}")
    if any(isinstance(node, Call) for node in nodes(argument)):
        raise QuestionError(f"{function}: functions of time cannot be nested; use the column itself")
    kind = Kind.DATE if function == "date" else Kind.TEXT if function in PERIODS else Kind.COUNT
    return Call(function, argument, kind)


def sum_of(name: str, value: Expression) -> Aggregate:
    """The sum of a value; `name` is the function in errors."""
    if value.kind not in ADDABLE:
        raise QuestionError(f"{name} takes counts and money, not {with_article(value.kind)}")
    return Aggregate("sum", value, value.kind)


def ratio(left: Expression, right: Expression) -> Ratio:
    """A ratio of two figures: money for money by a count, else a number."""
    for side in (left, right):
        if any(isinstance(node, Ratio) for node in nodes(side)):
            raise QuestionError("a ratio is rounded at the very end, so it cannot be part of another ratio")
        if side.kind not in ADDABLE:
            raise QuestionError(f"ratio takes counts and money, not {with_article(side.kind)}")
    is_money = left.kind is Kind.MONEY and right.kind is Kind.COUNT
    return Ratio(left, right, Kind.MONEY if is_money else Kind.NUMBER)


def common_kind(values: Sequence[Expression]) -> Kind:
    """The kind that all values can take: money for counts and money."""
    kinds = {value.kind for value in values}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == ADDABLE:
        return Kind.MONEY
    names = " and ".join(sorted(kind.value for kind in kinds))
    raise QuestionError(f"{names} cannot be compared or combined")


def as_kind(value: Expression, kind: Kind) -> Expression:
    """The value, with a count converted to money if that is the kind."""
    if value.kind is Kind.COUNT and kind is Kind.MONEY:
        if isinstance(value, Constant):
            return Constant(_units(str(value.value)), Kind.MONEY)
        return AsMoney(value)
    return value


def with_article(kind: Kind) -> str:
    return kind.value if kind is Kind.MONEY else f"{_article(kind.value)} {kind.value}"


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _units(amount: str) -> int:
    try:
        return to_units(amount)
    except ValueError as error:
        raise QuestionError(str(error)) from None
