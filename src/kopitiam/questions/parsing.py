"""Parses expressions: sqlglot reads the SQL, then a closed list of forms is translated and typed.

Other forms are refused with the reason and, if there is one, the way to write them instead. Length and depth
are bounded before any recursion, low enough that the depth of the caller's stack makes no difference.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp, parse_one

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions import grammar, operations
from kopitiam.questions.definition_errors import nearest, one_line
from kopitiam.questions.expressions import (
    Aggregate,
    Case,
    ColumnRef,
    Constant,
    Expression,
    IsNull,
    Junction,
    Negation,
    aggregates_in,
    columns_in,
)
from kopitiam.questions.layout import FACTS, LAYOUT

MOST_DEPTH = 80  # of the tree: `a + b + c` has depth 2
MOST_NODES = 1_000  # BETWEEN counts its left side twice

_Below = Callable[[exp.Expr], Expression]


@dataclass(frozen=True)
class Scope:
    """What an expression may use: columns of a fact, and attributes or aggregates if allowed."""

    fact: str
    may_use_attributes: bool = False
    is_measure: bool = False


def parse(text: str, scope: Scope) -> Expression:
    """The typed expression. Raises QuestionError with the reason in one line."""
    try:
        grammar.require_readable(text)
        tree = parse_one(text)
    except QuestionError as error:
        raise QuestionError(one_line(str(error))) from None
    except Exception as error:  # sqlglot fails in many ways on text that is not SQL
        reason = re.sub(r"\x1b\[\d*m", "", str(error)).partition("\n")[0]
        raise QuestionError(one_line(f"{text[:80]!r} is not an expression: {reason}")) from None
    try:
        expression = _Parser(scope).read(tree, 0)
    except QuestionError as error:
        raise QuestionError(one_line(str(error))) from None
    if scope.is_measure and not aggregates_in(expression):
        raise QuestionError(grammar.ABOUT_MEASURES)
    if not scope.is_measure and not columns_in(expression):
        raise QuestionError("names no column, so it is the same for every row")
    return operations.require_kept(expression) if scope.may_use_attributes else expression


@dataclass
class _Parser:
    scope: Scope
    count: int = field(default=0)

    def read(self, node: exp.Expr, level: int) -> Expression:
        self.count += 1
        if level > MOST_DEPTH or self.count > MOST_NODES:
            raise QuestionError(f"is too long; at most {MOST_DEPTH} operators in a row are allowed")
        if self.scope.is_measure and not isinstance(node, grammar.IN_MEASURES):
            raise QuestionError(grammar.ABOUT_MEASURES)

        def below(part: exp.Expr) -> Expression:
            return self.read(part, level + 1)

        for read in (_read_operator, self._read_value, _read_condition):
            if (expression := read(node, below)) is not None:
                return expression
        raise QuestionError(_refusal(node))

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

    def _column(self, node: exp.Column) -> ColumnRef:
        if not isinstance(node.this, exp.Identifier):
            raise QuestionError(f"{_sql(node)} is not supported in expressions")
        if len(node.parts) > 2:
            raise QuestionError(f"{_sql(node)}: expected column or table.column")
        if self.scope.is_measure:
            raise QuestionError(f"{node.name} must be inside sum, count, min, max or avg")
        fact, name, table = LAYOUT[self.scope.fact], node.name, node.table or self.scope.fact
        if table not in LAYOUT:
            tables = f"there are {', '.join(LAYOUT)}{nearest(table, tuple(LAYOUT))}"
            raise QuestionError(f"there is no table {table[:60]}; {tables}")
        if (column := LAYOUT[table].by_name.get(name)) is None:
            raise QuestionError(_no_column(table, name, node.table == ""))
        if table == fact.name:
            return ColumnRef(table, name, column.kind)
        if table in FACTS:
            raise QuestionError(no_join_of_facts(table, fact.name))
        references = [column for column, target in fact.references.items() if target == table]
        if not references:
            raise QuestionError(f"{fact.name} has no column that refers to {table}")
        if not self.scope.may_use_attributes:
            raise QuestionError(f"{table}.{name} can only be a key or a column of the answer")
        return ColumnRef(table, name, column.kind, references[0])

    def _aggregate(self, node: exp.Expr) -> Expression:
        name = node.key
        if not self.scope.is_measure:
            raise QuestionError(f"{name}(…) is allowed only in measures, and not inside another aggregate")
        inner = _Parser(Scope(self.scope.fact), self.count)  # no aggregate of an aggregate
        argument = node.this
        if isinstance(argument, exp.Star) and isinstance(node, exp.Count):
            return Aggregate("count", None, Kind.COUNT)
        if isinstance(argument, exp.Distinct):
            return _count_distinct(node, argument, inner)
        if not isinstance(argument, exp.Expr) or node.args.get("expressions"):
            raise QuestionError(f"{name}: expected exactly one argument")
        value = inner.read(argument, 0)
        self.count = inner.count
        if isinstance(node, exp.Avg):
            return operations.ratio(operations.sum_of("avg", value), Aggregate("count", value, Kind.COUNT))
        match grammar.AGGREGATES[type(node)]:
            case "sum":
                return operations.sum_of("sum", value)
            case "count":
                return Aggregate("count", value, Kind.COUNT)
            case extreme:
                return Aggregate(extreme, value, value.kind)

    def _named(self, node: exp.Anonymous, below: _Below) -> Expression:
        name = str(node.this).lower()
        arguments = node.expressions
        for period in operations.PERIODS:
            if name == period and len(arguments) == 1:
                return operations.call(period, below(arguments[0]))
        if name == "ratio" and len(arguments) == 2:
            if not self.scope.is_measure:
                raise QuestionError("ratio(a, b) is allowed only in measures, and not inside an aggregate")
            return operations.ratio(*map(below, arguments))
        arity = "two arguments" if name == "ratio" else "exactly one argument"
        raise QuestionError(f"{name[:60]}: expected {arity}")


def no_join_of_facts(one: str, other: str) -> str:
    """The reason why columns of two facts cannot be used together."""
    return (
        f"{one} and {other} are both facts, which cannot be joined; "
        "keep both in a data set, and query it with SQL"
    )


def _no_column(table: str, name: str, is_bare: bool) -> str:
    elsewhere = [other for other, layout in LAYOUT.items() if is_bare and name in layout.by_name]
    hint = f"; write {elsewhere[0]}.{name}" if elsewhere else nearest(name, tuple(LAYOUT[table].by_name))
    return f"{table} has no column {name[:60]}{hint or '; there are ' + ', '.join(LAYOUT[table].by_name)}"


def _read_operator(node: exp.Expr, below: _Below) -> Expression | None:
    """Arithmetic, comparisons and functions of time."""
    form = type(node)
    if form in grammar.OPERATORS:
        return operations.arithmetic(grammar.OPERATORS[form], below(node.this), below(node.expression))
    if form in grammar.RELATIONS:
        return operations.comparison(grammar.RELATIONS[form], below(node.this), below(node.expression))
    if form in grammar.FUNCTION_NODES:
        return operations.call(grammar.FUNCTION_NODES[form], below(_argument(node)))
    return None


def _read_constant(node: exp.Expr, below: _Below) -> Expression | None:
    match node:
        case exp.Paren():
            return below(node.this)
        case exp.Literal():
            return operations.text(node.this) if node.is_string else operations.number(node.this)
        case exp.Boolean():
            return Constant(bool(node.this), Kind.BOOLEAN)
        case exp.Neg():
            return operations.negative(below(node.this))
        case exp.Cast():
            return _moment(node)
    return None


def _read_condition(node: exp.Expr, below: _Below) -> Expression | None:
    match node:
        case exp.And() | exp.Or():
            left, right = (operations.condition(below(side)) for side in (node.this, node.expression))
            return Junction("and" if isinstance(node, exp.And) else "or", left, right)
        case exp.Not():
            return Negation(operations.condition(below(node.this)))
        case exp.Is() if isinstance(node.expression, exp.Null):
            return IsNull(below(node.this))
        case exp.Between():
            low = operations.comparison(">=", below(node.this), below(node.args["low"]))
            high = operations.comparison("<=", below(node.this), below(node.args["high"]))
            return Junction("and", low, high)
        case exp.In() if not any(node.args.get(form) for form in ("query", "unnest", "field")):
            return operations.one_of(below(node.this), [below(value) for value in node.expressions])
    return None


def _case(node: exp.Case, below: _Below) -> Case:
    if node.this is not None:
        raise QuestionError("expected case when CONDITION then …, with a condition in every branch")
    conditions = [below(branch.this) for branch in node.args["ifs"]]
    values = [below(branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    if default is None or isinstance(default, exp.Null):
        return operations.case(conditions, values, None)
    return operations.case(conditions, values, below(default))


def _count_distinct(node: exp.Expr, argument: exp.Distinct, inner: _Parser) -> Aggregate:
    if not isinstance(node, exp.Count) or len(argument.expressions) != 1 or argument.args.get("on"):
        raise QuestionError("distinct: expected count(distinct x) with one x")
    value = inner.read(argument.expressions[0], 0)
    if not columns_in(value):
        raise QuestionError("count(distinct x): x names no column, so it is the same for every row")
    return Aggregate("count_distinct", operations.require_kept(value), Kind.COUNT)


def _argument(node: exp.Expr) -> exp.Expr:
    argument = node.this
    if not isinstance(argument, exp.Expr) or any(node.args.get(name) for name in ("zone", "expressions")):
        raise QuestionError(f"{node.key}: expected exactly one argument")
    return argument


def _moment(node: exp.Cast) -> Constant:
    """`date '…'` and `timestamp '…'`, which sqlglot reads as casts of a text."""
    target, value = node.to.this, node.this
    if isinstance(value, exp.Literal) and value.is_string:
        if target == exp.DType.DATE:
            return operations.day(value.this)
        if target in (exp.DType.TIMESTAMP, exp.DType.DATETIME):
            return operations.instant(value.this)
    raise QuestionError(grammar.ABOUT_CASTS)


def _refusal(node: exp.Expr) -> str:
    if isinstance(node, exp.Null):
        return "NULL is allowed only after IS"
    return f"{_sql(node)} is not supported in expressions"


def _sql(node: exp.Expr) -> str:
    """The node as SQL, as far as sqlglot can write it, else its type."""
    try:
        return repr(node.sql()[:60])
    except Exception:  # some nodes have no SQL of their own
        return repr(type(node).__name__.lower())
