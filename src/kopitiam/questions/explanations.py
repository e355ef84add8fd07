"""What a question does, in sentences: what it reads, counts, keeps, merges, ranks, shows and draws."""

from collections.abc import Iterator, Sequence

from kopitiam.questions.costs import bytes_per_row
from kopitiam.questions.definitions import Named, Question
from kopitiam.questions.expressions import Aggregate, ColumnRef, Ratio, aggregates_in, columns_in, nodes
from kopitiam.questions.sql_text import text_of

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
    """One sentence or two for each step, in the order of the steps."""
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
        tables.append(f"{_listed(columns)} of {table}{cost}")
    return f"Reads {'; '.join(tables)}."


def _counts(question: Question) -> str:
    named = [_FILTERS[each] for each in question.filters if isinstance(each, str)]
    own = [text_of(each) for each in question.filters if not isinstance(each, str)]
    if not named and not own:
        return f"Counts every row of {question.fact}."
    parts = [", ".join(named)] if named else []
    parts += [f"where {' and '.join(own)}"] if own else []
    return f"Counts the rows {' '.join(parts)}."


def _keeps(question: Question) -> Iterator[str]:
    if question.lists_rows:
        yield f"Keeps {_listed([key.name for key in question.keys])} of every such row."
        return
    if question.keys:
        yield f"Groups them by {_listed([_named(key) for key in question.keys])}."
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
        kept = _listed([f"{text_of(each)}, merged {_MERGED[each.aggregation]}" for each in aggregates], "; ")
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
    within = f" within each {_listed(rank.within)}" if rank.within else ""
    others = [key.name for key in question.keys if key.name not in rank.within]
    ties = f" Of equals, the lowest {_listed(others)} comes first." if others else ""
    yield f"Ranks{within} by {rank.by}, {first} first, and keeps {many}.{ties}"


def _shows(question: Question) -> str:
    hidden = [column.name for column in question.answer_columns if column.name not in question.shown]
    order = ", then ".join(question.sort_columns)
    sorted_by = f", sorted by {order}" if order else ""
    more = f" JSON, Parquet and xlsx also have {_listed(hidden)}." if hidden else ""
    return f"Shows {_listed(question.shown)} in {question.csv_name}{sorted_by}.{more}"


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


def _listed(parts: Sequence[str], between: str = ", ") -> str:
    """`a, b and c`; with another separator, the parts have commas of their own."""
    if len(parts) < 2 or between != ", ":
        return between.join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
