"""Expressions as typed trees. Every node has a kind, and every tree is well typed.

Expressions of rows have columns, literals, functions of time, arithmetic, comparisons and conditions.
Measures add aggregates, and `Ratio` divides two of them at the very end. Trees are built in `operations` and
read from text in `parsing`; compilers for Spark and DuckDB walk them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Literal as OneOf

from kopitiam.contracts.tables import Kind

ADDABLE = frozenset({Kind.COUNT, Kind.MONEY})
Function = OneOf[
    "year",
    "quarter",
    "month",
    "day",
    "dayofweek",
    "hour",
    "minute",
    "date",
    "year_month",
    "year_half",
    "year_quarter",
    "iso_week",
]
Operator = OneOf["+", "-", "*"]
Relation = OneOf["=", "<>", "<", "<=", ">", ">="]
Aggregation = OneOf["sum", "count", "count_distinct", "min", "max"]


@dataclass(frozen=True)
class ColumnRef:
    """A column of the fact, or an attribute: a column of a table that the fact refers to."""

    table: str
    name: str
    kind: Kind
    reference: str = ""  # of an attribute: the column of the fact with the id

    @property
    def is_attribute(self) -> bool:
        return bool(self.reference)


@dataclass(frozen=True)
class Constant:
    """A literal. Money is in ten-thousandths."""

    value: int | str | bool | date | datetime
    kind: Kind


@dataclass(frozen=True)
class Call:
    """A function of an instant or a date. Texts such as `2024-01` sort by time."""

    function: Function
    argument: "Expression"
    kind: Kind


@dataclass(frozen=True)
class AsMoney:
    """A count as money: the same number in ten-thousandths."""

    argument: "Expression"
    kind: Kind = Kind.MONEY


@dataclass(frozen=True)
class Arithmetic:
    operator: Operator
    left: "Expression"
    right: "Expression"
    kind: Kind


@dataclass(frozen=True)
class Comparison:
    relation: Relation
    left: "Expression"
    right: "Expression"
    kind: Kind = Kind.BOOLEAN


@dataclass(frozen=True)
class Junction:
    word: OneOf["and", "or"]
    left: "Expression"
    right: "Expression"
    kind: Kind = Kind.BOOLEAN


@dataclass(frozen=True)
class Negation:
    argument: "Expression"
    kind: Kind = Kind.BOOLEAN


@dataclass(frozen=True)
class IsNull:
    argument: "Expression"
    kind: Kind = Kind.BOOLEAN


@dataclass(frozen=True)
class In:
    argument: "Expression"
    values: tuple[Constant, ...]
    kind: Kind = Kind.BOOLEAN


@dataclass(frozen=True)
class Case:
    """The value of the first branch whose condition holds, else the default, else null."""

    branches: tuple[tuple["Expression", "Expression"], ...]
    default: "Expression | None"
    kind: Kind


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over rows. `count` without an argument counts rows."""

    aggregation: Aggregation
    argument: "Expression | None"
    kind: Kind


@dataclass(frozen=True)
class Ratio:
    """Left divided by right, rounded half up to four decimals at the very end; null where right is 0."""

    left: "Expression"
    right: "Expression"
    kind: Kind


Expression = (
    ColumnRef
    | Constant
    | Call
    | AsMoney
    | Arithmetic
    | Comparison
    | Junction
    | Negation
    | IsNull
    | In
    | Case
    | Aggregate
    | Ratio
)


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The expressions directly below this one."""
    for field in fields(expression):
        yield from _expressions_in(getattr(expression, field.name))


def nodes(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it, in written order."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(list(parts_of(node))))


def _expressions_in(value: object) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _expressions_in(part)


def columns_in(expression: Expression) -> tuple[ColumnRef, ...]:
    """The columns of an expression, each once, in written order."""
    return tuple(dict.fromkeys(node for node in nodes(expression) if isinstance(node, ColumnRef)))


def aggregates_in(expression: Expression) -> tuple[Aggregate, ...]:
    """The aggregates of an expression, each once, in written order."""
    return tuple(dict.fromkeys(node for node in nodes(expression) if isinstance(node, Aggregate)))
