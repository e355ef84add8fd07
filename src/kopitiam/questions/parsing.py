"""Expressions from text: sqlglot reads the SQL, then a closed list of forms is translated and typed.

Whatever is not on the list is refused with the reason and, where there is one, the way to write it instead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import cast

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.money import to_units
from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import (
    ADDABLE,
    Aggregate,
    Aggregation,
    Arithmetic,
    AsMoney,
    Call,
    Case,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    In,
    IsNull,
    Junction,
    Negation,
    Operator,
    Ratio,
    Relation,
    nodes,
)
from kopitiam.questions.layout import FACTS, LAYOUT

MOST_CHARACTERS = 2_000
MOST_LEVELS = 50
MOST_VALUES = 1_000  # in one IN list
MOST_TEXT = 1_024
MOST_DIGITS = 17
_WHOLE = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d*\.\d+|\d+\.")
_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
}
_PERIODS: dict[str, Function] = {
    "year_month": "year_month",
    "year_half": "year_half",
    "year_quarter": "year_quarter",
    "iso_week": "iso_week",
}
_OF_INSTANTS_ONLY = {"hour", "minute"}
_OPERATORS: dict[type[exp.Expr], Operator] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_RELATIONS: dict[type[exp.Expr], Relation] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_AGGREGATES: dict[type[exp.Expr], Aggregation] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
}
_REFUSED: dict[type[exp.Expr], str] = {
    exp.Div: "there is no division but ratio(a, b) among the measures, which is rounded once, at the end",
    exp.IntDiv: "there is no division but ratio(a, b) among the measures, which is rounded once, at the end",
    exp.Mod: "there is no remainder",
    exp.Window: "there are no windows; say rank = { by = …, within = […], top = … }",
    exp.Subquery: "there are no subqueries",
    exp.Select: "want an expression, not a SELECT",
    exp.Cast: "there are no casts but date '2024-01-31' and timestamp '2024-01-31 22:59:59'",
    exp.Null: "NULL stands only after IS",
    exp.Like: "there is no LIKE; want =, IN or a comparison",
    exp.Filter: "there is no FILTER; want sum(case when … then … end)",
    exp.Placeholder: "there are no placeholders",
    exp.Parameter: "parameters such as @year stand alone in where",
}
_IN_MEASURES = (
    *_OPERATORS,
    *_AGGREGATES,
    exp.Avg,
    exp.Anonymous,
    exp.Column,
    exp.Literal,
    exp.Neg,
    exp.Paren,
)
_ABOUT_MEASURES = "a measure is made of sum, count, min, max, avg, combined by + - * and ratio(a, b)"


_Below = Callable[[exp.Expr], Expression]


@dataclass(frozen=True)
class Scope:
    """What an expression may name: the columns of a fact, perhaps attributes, perhaps aggregates."""

    fact: str
    may_use_attributes: bool = False
    is_measure: bool = False


def parse(text: str, scope: Scope) -> Expression:
    """The typed expression; `QuestionError` with the reason if there is none."""
    if not text.strip():
        raise QuestionError("is empty")
    if len(text) > MOST_CHARACTERS:
        raise QuestionError(f"has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    if (levels := _levels(text)) > MOST_LEVELS:
        raise QuestionError(f"is nested {levels} levels deep; at most {MOST_LEVELS} are read")
    try:
        tree = parse_one(text)
    except (SqlglotError, RecursionError) as error:
        reason = re.sub(r"\x1b\[\d*m", "", str(error)).partition("\n")[0]
        raise QuestionError(f"{text!r} is not an expression: {reason}") from None
    return _Reading(scope, text).read(tree, 0)


def _levels(text: str) -> int:
    """How deep parentheses, cases and prefixes can nest, counted before anything recursive sees the text."""
    depth = deepest = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        deepest = max(deepest, depth)
    words = re.findall(r"\b(?:not|case)\b", text, re.IGNORECASE)
    return max(deepest, len(words))


@dataclass(frozen=True)
class _Reading:
    scope: Scope
    text: str

    def read(self, node: exp.Expr, level: int) -> Expression:
        if level > 4 * MOST_LEVELS:
            raise QuestionError(f"is nested too deep; at most {MOST_LEVELS} levels are read")
        if self.scope.is_measure and not isinstance(node, _IN_MEASURES):
            raise QuestionError(_REFUSED.get(type(node), _ABOUT_MEASURES))

        def below(part: exp.Expr) -> Expression:
            return self.read(part, level + 1)

        for read in (_by_table, self._read_value, _read_condition):
            if (expression := read(node, below)) is not None:
                return expression
        raise QuestionError(_REFUSED.get(type(node), f"{node.sql()[:80]!r} is not in the language"))

    def _read_value(self, node: exp.Expr, below: _Below) -> Expression | None:
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Sum() | exp.Count() | exp.Min() | exp.Max() | exp.Avg():
                return self._aggregate(node)
            case exp.Case():
                return _case(node, below)
            case exp.Anonymous():
                return self._named(node, below)
        return _read_constant(node, below)

    def _column(self, node: exp.Column) -> Column:
        if node.args.get("db") or node.args.get("catalog") or node.this.args.get("quoted"):
            raise QuestionError(f"{node.sql()!r}: want column or table.column, without quotes")
        if self.scope.is_measure:
            raise QuestionError(f"{node.sql()} stands outside of sum, count, min, max and avg")
        fact, name, table = LAYOUT[self.scope.fact], node.name, node.table or self.scope.fact
        if table not in LAYOUT:
            raise QuestionError(f"there is no table {table}; there are {', '.join(LAYOUT)}")
        if (column := LAYOUT[table].by_name.get(name)) is None:
            there = ", ".join(LAYOUT[table].by_name)
            raise QuestionError(f"{table} has no column {name}; there are {there}")
        if table == fact.name:
            return Column(table, name, column.kind)
        if table in FACTS:
            raise QuestionError(
                f"{table} and {fact.name} are both facts, which are not joined; ask such a question in SQL "
                "of a data set"
            )
        references = [column for column, target in fact.references.items() if target == table]
        if not references:
            raise QuestionError(f"{fact.name} has no id of {table}")
        if not self.scope.may_use_attributes:
            raise QuestionError(f"{table}.{name} may be a key or a column of the answer, not stand here")
        return Column(table, name, column.kind, references[0])

    def _aggregate(self, node: exp.Expr) -> Expression:
        name = node.key
        if not self.scope.is_measure:
            raise QuestionError(f"{name}(…) is a measure; here every row stands alone")
        inner = _Reading(Scope(self.scope.fact), self.text)  # no aggregate of an aggregate
        argument = node.this
        if isinstance(argument, exp.Star) and isinstance(node, exp.Count):
            return Aggregate("count", None, Kind.COUNT)
        if isinstance(argument, exp.Distinct):
            if not isinstance(node, exp.Count) or len(argument.expressions) != 1:
                raise QuestionError("distinct: want count(distinct x) with one x")
            value = inner.read(argument.expressions[0], 0)
            return Aggregate("count_distinct", value, Kind.COUNT)
        if not isinstance(argument, exp.Expr) or node.args.get("expressions"):
            raise QuestionError(f"{name}: want exactly one argument")
        value = inner.read(argument, 0)
        if isinstance(node, exp.Avg):
            return _ratio(_sum("avg", value), Aggregate("count", value, Kind.COUNT))
        match _AGGREGATES[type(node)]:
            case "sum":
                return _sum("sum", value)
            case "count":
                return Aggregate("count", value, Kind.COUNT)
            case extreme:
                return Aggregate(extreme, value, value.kind)

    def _named(self, node: exp.Anonymous, below: _Below) -> Expression:
        name = str(node.this).lower()
        arguments = node.expressions
        if name in _PERIODS and len(arguments) == 1:
            return _call(_PERIODS[name], below(arguments[0]))
        if name == "ratio" and len(arguments) == 2:
            if not self.scope.is_measure:
                raise QuestionError("ratio(a, b) is a measure; here every row stands alone")
            return _ratio(*map(below, arguments))
        functions = ", ".join([*dict.fromkeys([*_FUNCTIONS.values(), *_PERIODS.values()]), "ratio"])
        raise QuestionError(f"there is no function {name} of {len(arguments)}; there are {functions}")


def _by_table(node: exp.Expr, below: _Below) -> Expression | None:
    """Forms that differ in their operator or function only."""
    form = type(node)
    if form in _OPERATORS:
        return _arithmetic(_OPERATORS[form], below(node.this), below(node.expression))
    if form in _RELATIONS:
        return _comparison(_RELATIONS[form], below(node.this), below(node.expression))
    if form in _FUNCTIONS:
        return _call(_FUNCTIONS[form], below(_argument(node)))
    return None


def _read_constant(node: exp.Expr, below: _Below) -> Expression | None:
    match node:
        case exp.Paren():
            return below(node.this)
        case exp.Literal():
            return _text(node.this) if node.is_string else _number(node.this)
        case exp.Boolean():
            return Constant(bool(node.this), Kind.BOOLEAN)
        case exp.Neg():
            return _negative(below(node.this))
        case exp.Cast():
            return _moment(node)
    return None


def _read_condition(node: exp.Expr, below: _Below) -> Expression | None:
    match node:
        case exp.And() | exp.Or():
            left, right = _condition(below(node.this)), _condition(below(node.expression))
            return Junction("and" if isinstance(node, exp.And) else "or", left, right)
        case exp.Not():
            return Negation(_condition(below(node.this)))
        case exp.Is() if isinstance(node.expression, exp.Null):
            return IsNull(below(node.this))
        case exp.Between():
            low = _comparison(">=", below(node.this), below(node.args["low"]))
            return Junction("and", low, _comparison("<=", below(node.this), below(node.args["high"])))
        case exp.In() if not any(node.args.get(form) for form in ("query", "unnest", "field")):
            return _in(below(node.this), [below(value) for value in node.expressions])
    return None


def _case(node: exp.Case, below: _Below) -> Case:
    if node.this is not None:
        raise QuestionError("want case when CONDITION then …, with a condition in every branch")
    conditions = [_condition(below(branch.this)) for branch in node.args["ifs"]]
    values = [below(branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    if isinstance(default, exp.Null):
        default = None
    if default is not None:
        values.append(below(default))
    kind = _common_kind(values)
    values = [_as_kind(value, kind) for value in values]
    branches = tuple(zip(conditions, values, strict=False))
    return Case(branches, values[-1] if default is not None else None, kind)


def _argument(node: exp.Expr) -> exp.Expr:
    argument = node.this
    if not isinstance(argument, exp.Expr) or any(node.args.get(name) for name in ("zone", "expressions")):
        raise QuestionError(f"{node.key}: want exactly one argument")
    return argument


def _number(digits: str) -> Constant:
    if _WHOLE.fullmatch(digits):
        if len(digits) > MOST_DIGITS:
            raise QuestionError(f"{digits} has more than {MOST_DIGITS} digits")
        return Constant(int(digits), Kind.COUNT)
    if not _DECIMAL.fullmatch(digits):
        raise QuestionError(f"{digits} is a float; want a decimal such as 12.5")
    try:
        return Constant(to_units(str(Decimal(digits))), Kind.MONEY)
    except ValueError as error:
        raise QuestionError(str(error)) from None


def _text(text: str) -> Constant:
    if len(text) > MOST_TEXT:
        raise QuestionError(f"a text has {len(text):,} characters; at most {MOST_TEXT:,} are kept")
    return Constant(text, Kind.TEXT)


def _moment(node: exp.Cast) -> Constant:
    """`date '…'` and `timestamp '…'`, which sqlglot reads as casts of a text."""
    target, value = node.to.this, node.this
    if isinstance(value, exp.Literal) and value.is_string:
        if target == exp.DType.DATE:
            return _as_date(value.this)
        if target in (exp.DType.TIMESTAMP, exp.DType.DATETIME):
            return _as_instant(value.this)
    raise QuestionError(_REFUSED[exp.Cast])


def _as_date(text: str) -> Constant:
    try:
        if len(text) != len("2024-01-31"):
            raise ValueError
        return Constant(date.fromisoformat(text), Kind.DATE)
    except ValueError:
        raise QuestionError(f"{text!r} is not a date like 2024-01-31") from None


def _as_instant(text: str) -> Constant:
    try:
        if len(text) == len("2024-01-31"):
            day = date.fromisoformat(text)
            return Constant(datetime(day.year, day.month, day.day), Kind.INSTANT)
        return Constant(datetime.strptime(text, "%Y-%m-%d %H:%M:%S"), Kind.INSTANT)
    except ValueError:
        raise QuestionError(f"{text!r} is not a time like 2024-01-31 22:59:59") from None


def _negative(value: Expression) -> Expression:
    if isinstance(value, Constant) and value.kind in ADDABLE:
        return Constant(-cast(int, value.value), value.kind)
    return _arithmetic("-", Constant(0, Kind.COUNT), value)


def _arithmetic(operator: Operator, left: Expression, right: Expression) -> Expression:
    for side in (left, right):
        if any(isinstance(node, Ratio) for node in nodes(side)):
            raise QuestionError("a ratio is rounded at the very end: nothing is computed from it")
        if side.kind not in ADDABLE:
            raise QuestionError(f"{operator} takes counts and money, not {_with_article(side.kind)}")
    if operator == "*":
        if left.kind is right.kind is Kind.MONEY:
            raise QuestionError("money times money has more decimals than are kept; multiply by a count")
        kind = Kind.MONEY if Kind.MONEY in (left.kind, right.kind) else Kind.COUNT
        return Arithmetic(operator, left, right, kind)
    kind = _common_kind([left, right])
    return Arithmetic(operator, _as_kind(left, kind), _as_kind(right, kind), kind)


def _comparison(relation: Relation, left: Expression, right: Expression) -> Comparison:
    left, right = _alike(left, right)
    if left.kind is Kind.BOOLEAN and relation not in ("=", "<>"):
        raise QuestionError(f"true and false have no order: want = or <>, not {relation}")
    return Comparison(relation, left, right)


def _alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both sides in one kind; constants take the kind of what they are compared with."""
    left, right = _adapted(left, right.kind), _adapted(right, left.kind)
    kind = _common_kind([left, right])
    return _as_kind(left, kind), _as_kind(right, kind)


def _adapted(value: Expression, to: Kind) -> Expression:
    if not isinstance(value, Constant):
        return value
    match value.kind, to:
        case Kind.COUNT, Kind.ID if cast(int, value.value) >= 0:
            return Constant(value.value, Kind.ID)
        case Kind.TEXT, Kind.DATE:
            return _as_date(cast(str, value.value))
        case Kind.TEXT, Kind.INSTANT:
            return _as_instant(cast(str, value.value))
        case Kind.DATE, Kind.INSTANT:
            return _as_instant(cast(date, value.value).isoformat())
    return value


def _in(argument: Expression, values: list[Expression]) -> In:
    if len(values) > MOST_VALUES:
        raise QuestionError(f"IN has {len(values):,} values; at most {MOST_VALUES:,} are read")
    if argument.kind is Kind.COUNT and any(value.kind is Kind.MONEY for value in values):
        argument = AsMoney(argument)
    constants = []
    for value in values:
        _, adapted = _alike(argument, value)
        if not isinstance(adapted, Constant):
            raise QuestionError("IN takes a list of constants")
        constants.append(adapted)
    return In(argument, tuple(constants))


def _condition(value: Expression) -> Expression:
    if value.kind is not Kind.BOOLEAN:
        raise QuestionError(f"want a condition, not {_with_article(value.kind)}")
    return value


def _call(function: Function, argument: Expression) -> Call:
    wanted = {Kind.INSTANT} if function in _OF_INSTANTS_ONLY else {Kind.INSTANT, Kind.DATE}
    if argument.kind not in wanted:
        times = " or ".join(sorted(kind.value for kind in wanted))
        raise QuestionError(f"{function} takes an {times}, not {_with_article(argument.kind)}")
    kind = Kind.DATE if function == "date" else Kind.TEXT if function in _PERIODS else Kind.COUNT
    return Call(function, argument, kind)


def _sum(name: str, value: Expression) -> Aggregate:
    if value.kind not in ADDABLE:
        raise QuestionError(f"{name} takes counts and money, not {_with_article(value.kind)}")
    return Aggregate("sum", value, value.kind)


def _ratio(left: Expression, right: Expression) -> Ratio:
    for side in (left, right):
        if any(isinstance(node, Ratio) for node in nodes(side)):
            raise QuestionError("a ratio is rounded at the very end: there is no ratio of ratios")
        if side.kind not in ADDABLE:
            raise QuestionError(f"ratio takes counts and money, not {_with_article(side.kind)}")
    is_money = left.kind is Kind.MONEY and right.kind is Kind.COUNT
    return Ratio(left, right, Kind.MONEY if is_money else Kind.NUMBER)


def _common_kind(values: list[Expression]) -> Kind:
    kinds = {value.kind for value in values}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == ADDABLE:
        return Kind.MONEY
    names = " and ".join(sorted(kind.value for kind in kinds))
    raise QuestionError(f"{names} do not go together")


def _as_kind(value: Expression, kind: Kind) -> Expression:
    if value.kind is Kind.COUNT and kind is Kind.MONEY:
        if isinstance(value, Constant):
            return Constant(to_units(str(value.value)), Kind.MONEY)
        return AsMoney(value)
    return value


def _with_article(kind: Kind) -> str:
    return f"{'an' if kind.value[0] in 'aeiou' else 'a'} {kind.value}"
