"""Questions answered row by row in plain Python, with exact fractions: slow, short, and like no engine.

Money and ratios are fractions here; a row is a dictionary of texts as they stand in the CSV files.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import RANK, Question
from kopitiam.questions.expressions import (
    Aggregate,
    Arithmetic,
    AsMoney,
    Call,
    Case,
    ColumnRef,
    Comparison,
    Constant,
    In,
    IsNull,
    Junction,
    Negation,
    Ratio,
)
from kopitiam.questions.layout import LAYOUT

Row = dict[str, str]
Tables = dict[str, list[Row]]

_READ: dict[Kind, Callable[[str], Any]] = {
    Kind.TEXT: str,
    Kind.ID: lambda text: int(Decimal(text)),
    Kind.COUNT: lambda text: int(Decimal(text)),
    Kind.MONEY: Fraction,
    Kind.INSTANT: datetime.fromisoformat,
    Kind.DATE: date.fromisoformat,
    Kind.BOOLEAN: lambda text: text.lower() in ("true", "1"),
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "year": lambda t: t.year,
    "quarter": lambda t: (t.month + 2) // 3,
    "month": lambda t: t.month,
    "day": lambda t: t.day,
    "dayofweek": lambda t: t.isoweekday() % 7 + 1,
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "date": lambda t: date(t.year, t.month, t.day),
    "year_month": lambda t: f"{t.year:04}-{t.month:02}",
    "year_half": lambda t: f"{t.year:04}-H{(t.month + 5) // 6}",
    "year_quarter": lambda t: f"{t.year:04}-Q{(t.month + 2) // 3}",
    "iso_week": lambda t: f"{t.isocalendar()[0]:04}-W{t.isocalendar()[1]:02}",
}


def expected_rows(question: Question, tables: Tables, parameters: Parameters) -> list[tuple[str, ...]]:
    """The cells of the answer's CSV file, in order."""
    rows = _passing(question, tables, parameters)
    if question.lists_rows:
        answers = [_listed(question, row, tables) for row in rows]
    else:
        answers = _ranked(question, _groups(question, rows, tables), parameters)
        for answer in answers:
            for attribute in question.attributes:
                identity = answer[question.identity(attribute)]
                answer[attribute.name] = _attribute(attribute, identity, tables)
    answers.sort(key=lambda answer: tuple(_sortable(answer[name]) for name in question.sort_columns))
    return [tuple(_shown(answer[name]) for name in question.shown) for answer in answers]


def rows_by_keys(
    question: Question, tables: Tables, parameters: Parameters
) -> dict[tuple[str, ...], list[Row]]:
    """The rows behind each row of the answer before it is ranked, by the texts of its keys."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in _passing(question, tables, parameters):
        groups[tuple(_shown(_value(key.expression, row, tables)) for key in question.keys)].append(row)
    return groups


def _passing(question: Question, tables: Tables, parameters: Parameters) -> list[Row]:
    return [
        row
        for row in tables[question.fact]
        if all(_holds(f, row, tables, parameters) for f in question.filters)
    ]


def _listed(question: Question, row: Row, tables: Tables) -> dict[str, Any]:
    answer = {key.name: _value(key.expression, row, tables) for key in question.keys}
    return answer | {a.name: _value(a, row, tables) for a in question.attributes}


def _groups(question: Question, rows: Iterable[Row], tables: Tables) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(_value(key.expression, row, tables) for key in question.keys)].append(row)
    if not question.keys:
        groups.setdefault((), [])  # all rows are one group, even if there are none
    names = [key.name for key in question.keys]
    return [
        dict(zip(names, values, strict=True))
        | {m.name: _measure(m.expression, members, tables) for m in question.measures}
        for values, members in groups.items()
    ]


def _ranked(question: Question, groups: list[dict[str, Any]], parameters: Parameters) -> list[dict[str, Any]]:
    rank = question.rank
    if rank is None:
        return groups
    others = [key.name for key in question.keys if key.name not in rank.within]

    def first(a: dict[str, Any], b: dict[str, Any]) -> int:
        left, right = a[rank.by], b[rank.by]
        if left != right:
            if left is None or right is None:  # what has no figure comes last
                return 1 if left is None else -1
            return -1 if (left < right) == rank.is_ascending else 1
        keys = [tuple(_sortable(side[name]) for name in others) for side in (a, b)]
        return (keys[0] > keys[1]) - (keys[0] < keys[1])

    within: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for group in groups:
        within[tuple(group[name] for name in rank.within)].append(group)
    top = parameters.top if rank.top is None else rank.top
    return [
        group | {RANK: place}
        for members in within.values()
        for place, group in enumerate(sorted(members, key=cmp_to_key(first))[:top], start=1)
    ]


def _holds(condition: Any, row: Row, tables: Tables, parameters: Parameters) -> bool:
    instant = datetime.fromisoformat(row["created_at"])
    match condition:
        case "@year":
            return parameters.first_year <= instant.year <= parameters.last_year
        case "@hour":
            return parameters.opening <= instant.strftime("%H:%M:%S") <= parameters.closing
        case "@amount":
            return Fraction(row["final_amount"]) >= Fraction(parameters.min_amount)
    return _value(condition, row, tables) is True


def _value(node: Any, row: Row, tables: Tables) -> Any:  # noqa: PLR0911
    def value(part: Any) -> Any:
        return _value(part, row, tables)

    match node:
        case ColumnRef(name=name, kind=kind) if not node.is_attribute:
            return _READ[kind](row[name]) if row[name] else None
        case ColumnRef():
            return _attribute(
                node, _READ[Kind.ID](row[node.reference]) if row[node.reference] else None, tables
            )
        case Constant(value=constant, kind=Kind.MONEY):
            return Fraction(constant, 10_000)
        case Constant(value=constant):
            return constant
        case AsMoney(argument):
            return value(argument)
        case Arithmetic(operator, left, right) | Comparison(operator, left, right):
            a, b = value(left), value(right)
            return None if a is None or b is None else _OPERATORS[operator](a, b)
        case Junction(word, left, right):
            decisive = word == "or"
            sides = (value(left), value(right))
            return decisive if decisive in sides else None if None in sides else not decisive
        case Negation(argument):
            inner = value(argument)
            return None if inner is None else not inner
        case IsNull(argument):
            return value(argument) is None
        case In(argument, constants):
            inner = value(argument)
            return None if inner is None else inner in [value(constant) for constant in constants]
        case Case(branches, default):
            chosen = [then for condition, then in branches if value(condition) is True]
            return value(chosen[0]) if chosen else value(default) if default is not None else None
        case Call(function, argument):
            inner = value(argument)
            return None if inner is None else _FUNCTIONS[function](inner)
    raise AssertionError(node)


def _attribute(attribute: ColumnRef, identity: int | None, tables: Tables) -> Any:
    table = LAYOUT[attribute.table]
    found = [] if identity is None else _by_id(tables[table.name], table.key).get(identity, [])
    values = [_READ[attribute.kind](row[attribute.name]) for row in found if row[attribute.name]]
    if values:
        return min(values)
    return str(identity) if identity is not None and attribute.name == table.label else None


_indexes: dict[int, tuple[list[Row], dict[int, list[Row]]]] = {}  # with the rows, so that ids are not reused


def _by_id(rows: list[Row], key: str) -> dict[int, list[Row]]:
    if id(rows) not in _indexes:
        if len(_indexes) > 20:
            _indexes.clear()
        index: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            index[int(Decimal(row[key]))].append(row)
        _indexes[id(rows)] = rows, index
    return _indexes[id(rows)][1]


def _measure(node: Any, rows: list[Row], tables: Tables) -> Any:  # noqa: PLR0911
    match node:
        case Constant():
            return _value(node, {}, tables)
        case AsMoney(argument):
            return _measure(argument, rows, tables)
        case Arithmetic(operator, left, right):
            a, b = _measure(left, rows, tables), _measure(right, rows, tables)
            return None if a is None or b is None else _OPERATORS[operator](a, b)
        case Ratio(left, right):
            a, b = _measure(left, rows, tables), _measure(right, rows, tables)
            return None if a is None or not b else _rounded(Fraction(a) / Fraction(b))
        case Aggregate("count", None):
            return len(rows)
        case Aggregate(aggregation, argument):
            every = (_value(argument, row, tables) for row in rows)
            values = [value for value in every if value is not None]
            match aggregation:
                case "count":
                    return len(values)
                case "count_distinct":
                    return len(set(values))
                case "sum":
                    return sum(values) if values else None
                case "min":
                    return min(values, default=None)
                case "max":
                    return max(values, default=None)
    raise AssertionError(node)


def _rounded(exact: Fraction) -> Fraction:
    scaled = abs(exact) * 10_000
    whole = Decimal(scaled.numerator // scaled.denominator)
    up = 2 * (scaled - scaled.numerator // scaled.denominator) >= 1
    units = (whole + (1 if up else 0)).to_integral_value(ROUND_HALF_UP)
    return Fraction(int(units), 10_000) * (-1 if exact < 0 else 1)


def _sortable(value: Any) -> tuple[bool, Any]:
    """Empty first; texts by their bytes."""
    return (False, 0) if value is None else (True, value.encode() if isinstance(value, str) else value)


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case Fraction():
            units = int(value * 10_000)
            digits = f"{abs(units) // 10_000}.{abs(units) % 10_000:04}".rstrip("0")
            return f"{'-' if units < 0 else ''}{digits}{'0' if digits.endswith('.') else ''}"
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
    return str(value)
