"""Explains questions in sentences: what they read, count, keep, merge, rank, show and draw.

Also expressions as text, and what columns cost on the wire. The sentence about a question of a run, with the
values of its parameters, is in `results.descriptions`.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import assert_never, cast

from kopitiam.contracts.money import to_text
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import Named, Question
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
    aggregates_in,
    columns_in,
    nodes,
)

# Bytes that clients encode for each row of a full chunk of synthetic sales; other data differs.
# Printed by `python -m tools.benchmarks.column_bytes`.
BYTES_PER_ROW: dict[str, dict[str, float]] = {
    "transactions": {
        "transaction_id": 16.0,
        "store_id": 0.4,
        "payment_method_id": 0.3,
        "voucher_id": 0.1,
        "user_id": 2.8,
        "original_amount": 0.8,
        "discount_applied": 0.2,
        "final_amount": 1.1,
        "created_at": 2.7,
    },
    "transaction_items": {
        "transaction_id": 8.3,
        "item_id": 0.4,
        "quantity": 0.2,
        "unit_price": 0.4,
        "subtotal": 0.6,
        "created_at": 1.4,
    },
    "users": {
        "user_id": 2.9,
        "gender": 0.1,
        "birthdate": 2.6,
        "registered_at": 6.3,
    },
}


def bytes_per_row(question: Question) -> dict[str, float]:
    """Bytes that one row costs on the wire, by large table that the question reads."""
    return {
        table: round(sum(BYTES_PER_ROW[table][column] for column in columns), 1)
        for table, columns in question.reads.items()
        if table in BYTES_PER_ROW
    }


def text_of(expression: Expression) -> str:  # noqa: PLR0911, PLR0912
    """The expression as SQL text; `parsing` reads it as the same expression."""
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
    """The text of an operand, in parentheses if it has operators of its own."""
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


_FILTERS = {
    "@year": "of the run's years",
    "@hour": "in the run's hours",
    "@amount": "of at least the run's amount",
}
_MERGED = {
    "sum": "by adding",
    "count": "by adding",
    "count_distinct": "by keeping every value once",
    "min": "by taking the least",
    "max": "by taking the greatest",
}


def explain(question: Question) -> list[str]:
    """One or two sentences for each step, in the order of the steps."""
    return [
        _reads(question),
        _counts(question),
        *_keeps(question),
        *_merges(question),
        *_ranks(question),
        _shows(question),
        *_draws(question),
    ]


def _reads(question: Question) -> str:
    costs = bytes_per_row(question)
    tables = []
    for table, columns in question.reads.items():
        cost = f" (about {costs[table]:g} bytes a row)" if table in costs else ""
        tables.append(f"{join_words(columns)} of {table}{cost}")
    return f"Reads {'; '.join(tables)}."


def _counts(question: Question) -> str:
    named = [_FILTERS[name] for name in question.filters if isinstance(name, str)]
    own = [text_of(condition) for condition in question.filters if not isinstance(condition, str)]
    if not named and not own:
        return f"Counts every row of {question.fact}."
    parts = [", ".join(named)] if named else []
    parts += [f"where {' and '.join(own)}"] if own else []
    return f"Counts the rows {' '.join(parts)}."


def _keeps(question: Question) -> Iterator[str]:
    if question.lists_rows:
        yield f"Keeps {join_words([key.name for key in question.keys])} of every such row."
        return
    if question.keys:
        yield f"Groups them by {join_words([_named(key) for key in question.keys])}."
    else:
        yield "Makes one group of them."
    attributes = dict.fromkeys(a for key in question.keys for a in _attributes(key))
    for attribute in attributes:
        name = f"{attribute.table}.{attribute.name}"
        yield f"Keeps {attribute.reference} in place of {name}, which is looked up at the end."
    for aggregate in question.aggregates:
        if aggregate.aggregation == "count_distinct" and aggregate.argument is not None:
            yield f"Keeps every value of {text_of(aggregate.argument)} in each group, to count it once."


def _merges(question: Question) -> Iterator[str]:
    """Which aggregates a partial keeps, and how two partials become one."""
    for measure in question.measures:
        aggregates = aggregates_in(measure.expression)
        kept = join_words([f"{text_of(a)}, merged {_MERGED[a.aggregation]}" for a in aggregates], "; ")
        if isinstance(measure.expression, Aggregate):
            yield f"Measures {measure.name} as {kept}."
        elif any(isinstance(node, Ratio) for node in nodes(measure.expression)):
            text = text_of(measure.expression)
            yield f"Measures {measure.name} = {text} from {kept}; divided and rounded at the very end."
        else:
            yield f"Measures {measure.name} = {text_of(measure.expression)} from {kept}."


def _ranks(question: Question) -> Iterator[str]:
    if (rank := question.rank) is None:
        return
    first = "the smallest" if rank.is_ascending else "the largest"
    many = "as many as the run's top says" if rank.top is None else f"the first {rank.top:,}"
    many = "only the first" if rank.top == 1 else many
    within = f" within each {join_words(rank.within)}" if rank.within else ""
    others = [key.name for key in question.keys if key.name not in rank.within]
    ties = f" Ties go to the lowest {join_words(others)}." if others else ""
    yield f"Ranks{within} by {rank.by}, {first} first, and keeps {many}.{ties}"


def _shows(question: Question) -> str:
    hidden = [column.name for column in question.answer_columns if column.name not in question.shown]
    order = ", then ".join(question.sort_columns)
    sorted_by = f", sorted by {order}" if order else ""
    more = f" JSON, Parquet and xlsx also have {join_words(hidden)}." if hidden else ""
    return f"Shows {join_words(question.shown)} in {question.file_name('csv')}{sorted_by}.{more}"


def _draws(question: Question) -> Iterator[str]:
    if (chart := question.chart) is None:
        yield "Draws a chart that fits its columns, if there is one."
        return
    color = f", with a colour for each {chart.color}" if chart.color else ""
    match chart.mark:
        case "histogram":
            yield f"Draws a histogram of {chart.x}."
        case "rect":
            yield f"Draws a heat map of {chart.color} by {chart.x} and {chart.y}."
        case mark:
            yield f"Draws a {mark} chart of {chart.y} by {chart.x}{color}."


def _named(key: Named) -> str:
    text = text_of(key.expression)
    return key.name if text == key.name else f"{key.name} ({text})"


def _attributes(key: Named) -> list[ColumnRef]:
    return [column for column in columns_in(key.expression) if column.is_attribute]


def join_words(parts: Sequence[str], between: str = ", ") -> str:
    """`a, b and c`; or all parts joined by another separator, for parts that contain commas."""
    if len(parts) < 2 or between != ", ":
        return between.join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
