"""What rows of a fact leave behind for questions: filters and aggregators, compiled from a plan.

A partial has columns by type and position, so that the partials of all questions fit into one table: `l0`,
`l1` … are BIGINT, `s0` … STRING, `w0` … 38 digits. First come the kept values, then the aggregates. A sum, or
the least or greatest result of a computation, is BIGINT where it fits, else in a wide column; merged ones are
always wide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.pipeline.compiler.expressions import WIDE, SqlCompiler
from kopitiam.questions.definitions import FILTERS
from kopitiam.questions.expressions import (
    ADDABLE,
    Aggregate,
    Arithmetic,
    AsMoney,
    Call,
    ColumnRef,
    Expression,
    nodes,
)
from kopitiam.questions.plans import Condition, Conditions, PartialPlan

RUN, SHARD = "run", "shard"
_WIDE_TYPE = t.DecimalType(38, 0)
_MERGES = {"count": "coalesce(sum({0}), 0L)", "min": "min({0})", "max": "max({0})"}

Stage = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class PartialLayout:
    """Under which column each kept value and each aggregate of a partial stands."""

    plan: PartialPlan

    @cached_property
    def kept(self) -> dict[Expression, str]:
        longs, texts, columns = 0, 0, {}
        for expression in self.plan.kept:
            if is_text(expression):
                columns[expression] = f"s{texts}"
                texts += 1
            else:
                columns[expression] = f"l{longs}"
                longs += 1
        return columns

    @cached_property
    def aggregates(self) -> dict[Aggregate, str]:
        longs = sum(name[0] == "l" for name in self.kept.values())
        texts = sum(name[0] == "s" for name in self.kept.values())
        columns = {}
        for aggregate in self.plan.aggregates:
            if is_text(aggregate):
                columns[aggregate] = f"s{texts}"
                texts += 1
            else:
                columns[aggregate] = f"l{longs}"
                longs += 1
        return columns

    @cached_property
    def wide(self) -> dict[Aggregate, str]:
        """A second column for each aggregate whose value may not fit into 64 bits."""
        large = [each for each in self.plan.aggregates if _may_be_large(each)]
        return {aggregate: f"w{number}" for number, aggregate in enumerate(large)}

    @property
    def row_count(self) -> str | None:
        """The column that counts rows; None if rows are listed."""
        return self.aggregates[self.plan.aggregates[0]] if self.plan.aggregates else None

    @cached_property
    def schema(self) -> t.StructType:
        types: dict[str, t.DataType] = {"l": t.LongType(), "s": t.StringType(), "w": _WIDE_TYPE}
        names = (*self.kept.values(), *self.aggregates.values(), *self.wide.values())
        return t.StructType([t.StructField(name, types[name[0]]) for name in names])


def _may_be_large(aggregate: Aggregate) -> bool:
    argument = aggregate.argument
    if argument is None or argument.kind not in ADDABLE:
        return False
    is_computed = any(isinstance(node, Arithmetic | AsMoney) for node in nodes(argument))
    return aggregate.aggregation == "sum" or (is_computed and aggregate.aggregation in ("min", "max"))


def is_text(expression: Expression) -> bool:
    """Whether a partial keeps it as text; periods are kept as numbers."""
    value = expression.argument if isinstance(expression, Aggregate) else expression
    return expression.kind is Kind.TEXT and not isinstance(value, Call)


def partial_of(plan: PartialPlan, parameters: Parameters, is_wide: bool = False) -> Stage:
    """Rows of the fact → the partial; for each run and shard where rows name them."""
    compiler = _compiler(plan.conditions, parameters, is_wide)
    layout = PartialLayout(plan)

    def partial(rows: DataFrame) -> DataFrame:
        passed = rows.transform(filtered(plan.conditions, parameters, is_wide))
        kept = [f.expr(compiler.keep(each)).alias(name) for each, name in layout.kept.items()]
        origin = origin_of(rows)
        if plan.lists_rows:
            return passed.select(*origin, *kept)
        measured = [f.expr(_aggregate(each, compiler)).alias(name) for each, name in _stored(layout, is_wide)]
        return passed.groupBy(*origin, *kept).agg(*measured)

    return partial


def counts_of(conditions: Sequence[Conditions], parameters: Parameters) -> Stage:
    """Rows of a fact → how many meet each set of conditions, as `l0`, `l1` …"""

    def counts(rows: DataFrame) -> DataFrame:
        shared = frozenset.intersection(*conditions)
        counted = []
        for position, wanted in enumerate(conditions):
            compiler = _compiler(wanted, parameters)
            rest = " AND ".join(_condition(each, parameters, compiler) for each in _ordered(wanted - shared))
            counted.append(f.expr(f"count_if({rest or 'TRUE'})").alias(f"l{position}"))
        return rows.transform(filtered(shared, parameters)).groupBy(*origin_of(rows)).agg(*counted)

    return counts


def filtered(conditions: Conditions, parameters: Parameters, is_wide: bool = False) -> Stage:
    """The rows that meet all conditions."""
    compiler = _compiler(conditions, parameters, is_wide)

    def passed(rows: DataFrame) -> DataFrame:
        for condition in _ordered(conditions):
            rows = rows.where(_condition(condition, parameters, compiler))
        return rows

    return passed


def origin_of(rows: DataFrame) -> list[str]:
    """The columns that say where rows come from, if they differ in that."""
    return [name for name in rows.columns if name in (RUN, SHARD)]


def merged(plan: PartialPlan) -> Stage:
    """Partials of any number of batches → one row for each combination of kept values. Listed rows stay."""
    layout = PartialLayout(plan)

    def merge(partials: DataFrame) -> DataFrame:
        if plan.lists_rows:
            return partials
        return partials.groupBy(*layout.kept.values()).agg(*merges(layout))

    return merge


def merges(layout: PartialLayout) -> list[Column]:
    """How each aggregate is merged, under the names of the columns that it has in the merged partial."""
    columns = []
    for aggregate, name in layout.aggregates.items():
        if aggregate in layout.wide:
            wide = layout.wide[aggregate]
            whole = f"coalesce({wide}, CAST({name} AS {WIDE}))"
            value = f"{aggregate.aggregation}({whole}) AS {wide}"
            columns += [f.expr(f"CAST(NULL AS BIGINT) AS {name}"), f.expr(value)]
        else:
            columns.append(f.expr(f"{_MERGES[aggregate.aggregation].format(name)} AS {name}"))
    return columns


def _stored(layout: PartialLayout, is_wide: bool) -> list[tuple[Aggregate, str]]:
    return [
        (each, layout.wide[each] if is_wide and each in layout.wide else name)
        for each, name in layout.aggregates.items()
    ]


def _aggregate(aggregate: Aggregate, compiler: SqlCompiler) -> str:
    match aggregate.aggregation, aggregate.argument:
        case "count", None:
            return "count(1)"
        case "count", argument if argument is not None:
            return f"count({compiler.read(argument)})"
        case function, argument if argument is not None:
            value = compiler.read(argument) if _may_be_large(aggregate) else compiler.keep(argument)
            return f"{function}({value})"
    raise AssertionError(aggregate)


def _condition(condition: Condition, parameters: Parameters, compiler: SqlCompiler) -> str:
    """Conditions on time are ranges, so that Parquet's statistics skip whole row groups."""
    match condition:
        case "@year":
            years = (parameters.first_year, parameters.last_year + 1)
            first, end = (f"TIMESTAMP '{year:04}-01-01'" for year in years)
            return f"(created_at >= {first} AND created_at < {end})"
        case "@hour":
            second = "pmod(unix_seconds(created_at), 86400L)"
            return f"({second} BETWEEN {parameters.opening_second}L AND {parameters.closing_second}L)"
        case "@amount":
            return f"(final_amount >= {parameters.min_units}L)"
    return compiler.read(condition)


def _compiler(conditions: Conditions, parameters: Parameters, is_wide: bool = False) -> SqlCompiler:
    years = parameters if "@year" in conditions else None
    return SqlCompiler(_column_name, years, is_wide)


def _column_name(column: ColumnRef | Aggregate) -> str:
    assert isinstance(column, ColumnRef)
    return column.name


def _ordered(conditions: Conditions) -> list[Condition]:
    """Named filters first, as rows pass them. The rest always in the same order."""
    named = [name for name in FILTERS if name in conditions]
    return [*named, *sorted((each for each in conditions if not isinstance(each, str)), key=str)]
