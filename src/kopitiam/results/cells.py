"""One value of an answer as exact text for people, by the kind and role of its column."""

from datetime import date, datetime
from decimal import Decimal

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import AnswerColumn
from kopitiam.results.ringgit import ringgit

EMPTY = "empty"  # shown in place of a value that is not there
FIGURES = frozenset({Kind.COUNT, Kind.MONEY, Kind.NUMBER})  # kinds that can be drawn to scale
Value = str | int | bool | Decimal | date | datetime | None


def cell_text(column: AnswerColumn, value: Value) -> str:
    """`RM 6,415.4412`, `1,009`, `1990-01-01`: every digit of the answer and no other.

    A whole number has separators only if it is measured: a key may be a year.
    """
    match value:
        case None:
            return EMPTY
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(" ", "seconds")
        case Decimal() | int():
            return _figure(column, Decimal(value))
        case _:
            return str(value)


def _figure(column: AnswerColumn, value: Decimal) -> str:
    if column.kind is Kind.MONEY:
        return ringgit(value)
    if column.kind is Kind.NUMBER:  # at least one decimal, as in the answer files: `2.0`, `0.3333`
        whole, _, decimals = f"{value:,f}".partition(".")
        return f"{whole}.{decimals.rstrip('0') or '0'}"
    return f"{int(value):,}" if column.role == "measure" else str(int(value))
