"""Expressions as text, in the spelling that `parsing` reads: the text of a tree is read as the same tree."""

from datetime import date, datetime
from typing import assert_never, cast

from kopitiam.contracts.money import to_text
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


def text_of(expression: Expression) -> str:  # noqa: PLR0911, PLR0912
    match expression:
        case ColumnRef(table, name):
            return f"{table}.{name}" if expression.is_attribute else name
        case Constant():
            return _constant(expression)
        case Call(function, argument):
            return f"{function}({text_of(argument)})"
        case AsMoney(argument):
            return text_of(argument)
        case Arithmetic(sign, left, right) | Comparison(sign, left, right) | Junction(sign, left, right):
            return f"{_inner(left)} {sign} {_inner(right)}"
        case Negation(IsNull(argument)):
            return f"{_inner(argument)} is not null"
        case Negation(argument):
            return f"not {_inner(argument)}"
        case IsNull(argument):
            return f"{_inner(argument)} is null"
        case In(argument, values):
            return f"{_inner(argument)} in ({', '.join(map(_constant, values))})"
        case Case(branches, default):
            whens = "".join(f" when {text_of(c)} then {text_of(value)}" for c, value in branches)
            return f"case{whens}{f' else {text_of(default)}' if default is not None else ''} end"
        case Aggregate("count_distinct", argument):
            return f"count(distinct {text_of(cast(Expression, argument))})"
        case Aggregate(aggregation, argument):
            return f"{aggregation}({'*' if argument is None else text_of(argument)})"
        case Ratio(left, right):
            return f"ratio({text_of(left)}, {text_of(right)})"
        case _:
            assert_never(expression)


def _inner(part: Expression) -> str:
    """In parentheses where it is made of parts itself."""
    simple = isinstance(part, ColumnRef | Constant | Call | Aggregate | Case | AsMoney)
    return text_of(part) if simple and not _is_compound_money(part) else f"({text_of(part)})"


def _is_compound_money(part: Expression) -> bool:
    return isinstance(part, AsMoney) and isinstance(part.argument, Arithmetic)


def _constant(constant: Constant) -> str:
    match constant.kind, constant.value:
        case Kind.MONEY, int(units):
            return to_text(units)
        case Kind.BOOLEAN, bool(truth):
            return str(truth).lower()
        case _, int(number):
            return str(number)
        case Kind.INSTANT, datetime() as instant:
            return f"timestamp '{instant.isoformat(' ')}'"
        case Kind.DATE, date() as day:
            return f"date '{day.isoformat()}'"
    return "'" + cast(str, constant.value).replace("'", "''") + "'"
