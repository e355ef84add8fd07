"""Filters and aggregators: rows of a fact → partials, and partials → merged partials, compiled from a plan.

The columns of a partial are named by type and position, so that the partials of all questions fit into one
table: `l0`, `l1` … are BIGINT, `s0` … STRING, `w0` … 38 digits. First come the kept values, then the
aggregates. A sum, or the least or greatest result of a computation, is BIGINT if it fits, else in a wide
column; merged ones are always wide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

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
    """The column of each kept value and each aggregate of a partial."""

    plan: PartialPlan

    @cached_property
    def kept(self) -> dict[Expression, str]:
        return dict(zip(self.plan.kept, self._columns, strict=False))

    @cached_property
    def aggregates(self) -> dict[Aggregate, str]:
        return dict(zip(self.plan.aggregates, self._columns[len(self.plan.kept) :], strict=True))

    @cached_property
    def _columns(self) -> list[str]:
        """Columns of the kept values, then of the aggregates, numbered by type."""
        numbers = {"l": count(), "s": count()}
        types = ("s" if is_text(value) else "l" for value in (*self.plan.kept, *self.plan.aggregates))
        return [f"{letter}{next(numbers[letter])}" for letter in types]

    @cached_property
    def wide(self) -> dict[Aggregate, str]:
        """A second column for each aggregate whose value may not fit into 64 bits."""
        large = filter(_may_be_large, self.plan.aggregates)
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
    """Whether a partial keeps this value as text; periods are kept as numbers."""
    value = expression.argument if isinstance(expression, Aggregate) else expression
    return expression.kind is Kind.TEXT and not isinstance(value, Call)


def partial_of(
    plan: PartialPlan, parameters: Parameters, is_wide: bool = False, is_grouped: bool = True
) -> Stage:
    """Rows of the fact → the partial, by run and shard if these are columns of the rows. Without groups, each
    row is a group of its own: then a merge makes the groups."""
    compiler = _compiler(plan.conditions, parameters, is_wide)
    layout = PartialLayout(plan)

    def partial(rows: DataFrame) -> DataFrame:
        passed = rows.transform(filtered(plan.conditions, parameters, is_wide))
        kept = [f.expr(compiler.keep(value)).alias(name) for value, name in layout.kept.items()]
        origin = origin_of(rows)
        if plan.lists_rows:
            return passed.select(*origin, *kept)
        spell = _aggregate if is_grouped else _aggregate_of_row
        aggregates = [
            f.expr(spell(aggregate, compiler)).alias(name) for aggregate, name in _stored(layout, is_wide)
        ]
        if not is_grouped:
            return passed.select(*origin, *kept, *aggregates)
        return passed.groupBy(*origin, *kept).agg(*aggregates)

    return partial


def counts_of(conditions: Sequence[Conditions], parameters: Parameters) -> Stage:
    """Rows of a fact → how many meet each set of conditions, as `l0`, `l1` …"""

    def counts(rows: DataFrame) -> DataFrame:
        shared = frozenset.intersection(*conditions)
        counted = []
        for position, together in enumerate(conditions):
            compiler = _compiler(together, parameters)
            rest = " AND ".join(
                _condition(condition, parameters, compiler) for condition in _ordered(together - shared)
            )
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
    """The columns with the run and the shard of the rows, if there are any."""
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
    """The merged aggregates, named as in the merged partial."""
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
        (aggregate, layout.wide[aggregate] if is_wide and aggregate in layout.wide else name)
        for aggregate, name in layout.aggregates.items()
    ]


def _aggregate(aggregate: Aggregate, compiler: SqlCompiler) -> str:
    match aggregate.aggregation, aggregate.argument:
        case "count", None:
            return "count(1)"
        case "count", argument if argument is not None:
            return f"count({compiler.read(argument)})"
        case function, argument if argument is not None:
            return f"{function}({_aggregated(aggregate, argument, compiler)})"
    raise AssertionError(aggregate)


def _aggregate_of_row(aggregate: Aggregate, compiler: SqlCompiler) -> str:
    """The value of the aggregate over one row."""
    match aggregate.aggregation, aggregate.argument:
        case "count", None:
            return "1L"
        case "count", argument if argument is not None:
            return f"CAST({compiler.read(argument)} IS NOT NULL AS BIGINT)"
        case _, argument if argument is not None:
            return _aggregated(aggregate, argument, compiler)
    raise AssertionError(aggregate)


def _aggregated(aggregate: Aggregate, argument: Expression, compiler: SqlCompiler) -> str:
    return compiler.read(argument) if _may_be_large(aggregate) else compiler.keep(argument)


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
    """Named filters first, in the order of the stages; then the others, always in the same order."""
    named = [name for name in FILTERS if name in conditions]
    others = [condition for condition in conditions if not isinstance(condition, str)]
    return [*named, *sorted(others, key=str)]
