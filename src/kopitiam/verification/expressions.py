"""Translates expressions of questions to DuckDB SQL.

Dates are texts: the order is the same, and DuckDB prints early years differently.
"""

from collections.abc import Callable
from datetime import date, datetime
from typing import assert_never, cast

from kopitiam.contracts.money import UNITS, to_text
from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import (
    Aggregate,
    Arithmetic,
    AsMoney,
    Call,
    Case,
    ColumnRef,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Junction,
    Negation,
    Ratio,
)

_MONEY = "DECIMAL(38, 4)"
_TIMES = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "day": "day({0})",
    "dayofweek": "dayofweek({0}) + 1",  # Sunday is 1
    "hour": "hour({0})",
    "minute": "minute({0})",
    "date": "printf('%04d-%02d-%02d', year({0}), month({0}), day({0}))",
    "year_month": "printf('%04d-%02d', year({0}), month({0}))",
    "year_half": "printf('%04d-H%d', year({0}), CASE WHEN month({0}) <= 6 THEN 1 ELSE 2 END)",
    "year_quarter": "printf('%04d-Q%d', year({0}), quarter({0}))",
    "iso_week": "printf('%04d-W%02d', isoyear({0}), weekofyear({0}))",
}


def to_sql(expression: Expression, name: Callable[[ColumnRef | Aggregate], str]) -> str:  # noqa: PLR0911, PLR0912
    """Return the SQL of an expression; `name` returns the SQL of a column or an aggregate."""

    def sql(part: Expression) -> str:
        return to_sql(part, name)

    match expression:
        case ColumnRef() | Aggregate():
            return name(expression)
        case Constant():
            return constant(expression)
        case AsMoney(argument):
            return f"CAST({sql(argument)} AS {_MONEY})"
        case Arithmetic(operator, left, right, kind):
            is_money = kind is Kind.MONEY
            sides = [_decimal(side, sql(side)) if is_money else _wide(sql(side)) for side in (left, right)]
            return f"({sides[0]} {operator} {sides[1]})"
        case Comparison(relation, left, right):
            return f"({sql(left)} {relation} {sql(right)})"
        case Junction(word, left, right):
            return f"({sql(left)} {word.upper()} {sql(right)})"
        case Negation(argument):
            return f"(NOT {sql(argument)})"
        case IsNull(argument):
            return f"({sql(argument)} IS NULL)"
        case In(argument, values):
            return f"({sql(argument)} IN ({', '.join(map(constant, values))}))"
        case Case(branches, default):
            whens = " ".join(f"WHEN {sql(condition)} THEN {sql(value)}" for condition, value in branches)
            return f"(CASE {whens} ELSE {sql(default) if default else 'NULL'} END)"
        case Call(function, argument):
            time = sql(argument) if argument.kind is Kind.INSTANT else f"CAST({sql(argument)} AS DATE)"
            return f"(CASE WHEN {sql(argument)} IS NOT NULL THEN {_TIMES[function].format(time)} END)"
        case Ratio(left, right):
            return _ratio(_units(sql(left)), _units(sql(right)))
        case _:
            assert_never(expression)


def aggregate(aggregate: Aggregate, argument: str) -> str:
    match aggregate.aggregation:
        case "count":
            return f"count({argument or '*'})"
        case "count_distinct":
            return f"count(DISTINCT {argument})"
        case name:
            return f"{name}({argument})"


def constant(value: Constant) -> str:
    match value.kind, value.value:
        case Kind.MONEY, int(units):
            return f"CAST('{to_text(units)}' AS {_MONEY})"
        case Kind.BOOLEAN, bool(truth):
            return str(truth).upper()
        case _, int(number):
            return str(number)
        case Kind.INSTANT, datetime() as instant:
            return f"TIMESTAMP '{instant.isoformat(' ')}'"
        case Kind.DATE, date() as day:
            return f"'{day.isoformat()}'"
    return "'" + cast(str, value.value).replace("'", "''") + "'"


def as_text(kind: Kind, value: str) -> str:
    """Return the SQL of a value as its CSV text."""
    match kind:
        case Kind.MONEY | Kind.NUMBER:
            text = f"money_as_text(CAST({value} AS {_MONEY}))"
        case Kind.INSTANT:
            day = _TIMES["date"].format(value)
            text = f"{day} || printf(' %02d:%02d:%02d', hour({value}), minute({value}), second({value}))"
        case _:
            text = f"CAST({value} AS VARCHAR)"
    return f"CASE WHEN {value} IS NULL THEN '' ELSE {text} END"


def _wide(count: str) -> str:
    """Widen a count: DuckDB computes with 64 bits and fails on overflow."""
    return f"CAST({count} AS HUGEINT)"


def _decimal(side: Expression, value: str) -> str:
    """Widen an amount to all 38 digits: DuckDB would keep the narrower type of the column for a product."""
    return f"CAST({value} AS {_MONEY if side.kind is Kind.MONEY else 'DECIMAL(38, 0)'})"


def _units(value: str) -> str:
    """Convert to whole ten-thousandths; the ratio of two values stays the same."""
    return f"CAST({value} * {UNITS} AS HUGEINT)"


def _ratio(above: str, below: str) -> str:
    """Divide to four decimals with integers only, rounded half away from zero; NULL if `below` is 0."""
    doubled = f"(2 * abs({above}) * {UNITS} + abs({below}))"
    quotient = f"({doubled} // nullif(2 * abs({below}), 0))"
    units = f"CAST(sign({above}) * sign({below}) * {quotient} AS DECIMAL(38, 0))"
    return f"({units} * CAST('0.0001' AS DECIMAL(4, 4)))"  # DuckDB's `/` returns a float
