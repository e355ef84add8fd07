"""Maximizers and joiners: partials → merged groups → ranked groups (`ranking`) → the columns of the answer.

`merged_groups` works on numbers: keys are the columns `k0`, `k1` …, measures `m0`, `m1` ….
`finished` gives the columns of the answer their names and values; money stays in ten-thousandths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.bounds import Interval
from kopitiam.pipeline.compiler.expressions import SqlCompiler, decoded
from kopitiam.pipeline.compiler.partials import PartialLayout, merged, merges
from kopitiam.questions.definitions import RANK, Question, identified_by, matched_name
from kopitiam.questions.expressions import Aggregate, ColumnRef, Expression, columns_in
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.plans import PartialPlan

Stage = Callable[[DataFrame], DataFrame]
# Partials → frames. Rows with the same values in these columns are in one task of one frame.
Cut = Callable[[DataFrame, Sequence[str]], list[DataFrame]]


@dataclass(frozen=True)
class AnswerPlan:
    """One question, the plan of its partial, and the parameters of its run."""

    question: Question
    partial: PartialPlan
    parameters: Parameters
    small_tables: frozenset[str] = frozenset()  # small enough to be sent to every task
    partial_rows: int = 0
    bounds: Mapping[str, Interval] = field(default_factory=dict)  # of the columns of the partials, if known

    @property
    def layout(self) -> PartialLayout:
        return PartialLayout(self.partial)

    @property
    def keys(self) -> dict[str, Expression]:
        return {f"k{position}": key.expression for position, key in enumerate(self.question.keys)}

    @property
    def key_attributes(self) -> list[ColumnRef]:
        """Attributes that are keys, or parts of keys: they are joined before rows are grouped."""
        return [c for key in self.question.keys for c in columns_in(key.expression) if c.is_attribute]


def merged_groups(plan: AnswerPlan, tables: Mapping[str, DataFrame], cut: Cut | None = None) -> Stage:
    """Partials → keys and measures of each group. `cut` is for many partials; without one, Spark groups them
    where they are read, shuffles the groups, and groups them again."""

    def groups(partials: DataFrame) -> DataFrame:
        columns = _shared_columns(plan)
        parts = cut(partials, columns) if cut and columns else [partials]
        if not plan.key_attributes:
            return reduce(DataFrame.union, [part.transform(_grouped(plan)) for part in parts])
        kept = reduce(DataFrame.union, [part.transform(merged(plan.partial)) for part in parts])
        for table in dict.fromkeys(attribute.table for attribute in plan.key_attributes):
            kept = kept.transform(_with_key_attributes(plan, table, tables[table]))
        return kept.transform(_grouped(plan))

    return groups


def _shared_columns(plan: AnswerPlan) -> list[str]:
    """Columns in which all partials agree that are merged first: all that are kept if attributes decide about
    the groups later, else the keys. None if values are to be counted once: there are few groups then."""
    kept = plan.layout.kept
    if plan.key_attributes:
        return list(kept.values())
    if any(aggregate.aggregation == "count_distinct" for aggregate in plan.question.aggregates):
        return []
    return [kept[expression] for expression in plan.keys.values() if expression in kept]


def shuffled(partials: DataFrame, columns: Sequence[str]) -> list[DataFrame]:
    """Each partial is read once, and grouped once, in a task of any core: millions of partials hardly share
    groups, so that grouping them before the shuffle as well takes more time than it saves."""
    return [partials.repartition(*columns)]


def slices(number: int) -> Cut:
    """One task merges each slice, and nothing is shuffled. Reading all partials for each of up to two slices
    takes less time than a shuffle."""

    def cut(partials: DataFrame, columns: Sequence[str]) -> list[DataFrame]:
        slice_of = f"pmod(xxhash64({', '.join(columns)}), {number}L)"
        parts = [partials.where(f"{slice_of} = {position}L") for position in range(number)]
        return [part.coalesce(1) for part in parts]

    return cut


def _grouped(plan: AnswerPlan) -> Stage:
    layout, question = plan.layout, plan.question

    def groups(partials: DataFrame) -> DataFrame:
        kept = {expression: decoded(expression, name) for expression, name in layout.kept.items()}
        compiler = SqlCompiler(_attribute_column, known=kept)
        keys = [
            f.expr(layout.kept.get(expression) or compiler.keep(expression)).alias(name)
            for name, expression in plan.keys.items()
        ]
        distinct = [
            aggregate for aggregate in question.aggregates if aggregate.aggregation == "count_distinct"
        ]
        counted = [
            f.expr(f"count(DISTINCT {layout.kept[_argument(aggregate)]}) AS d{position}")
            for position, aggregate in enumerate(distinct)
        ]
        columns = {
            aggregate: layout.wide.get(aggregate, name) for aggregate, name in layout.aggregates.items()
        }
        columns |= {aggregate: f"d{position}" for position, aggregate in enumerate(distinct)}
        measured = SqlCompiler(lambda aggregate: columns[aggregate])  # type: ignore[index]  # aggregates only
        measures = [
            f.expr(measured.read(measure.expression)).alias(f"m{position}")
            for position, measure in enumerate(question.measures)
        ]
        merged_partials = partials.groupBy(*keys).agg(*merges(layout), *counted)
        return merged_partials.select(*plan.keys, *measures)

    return groups


def _argument(aggregate: Aggregate) -> Expression:
    assert aggregate.argument is not None
    return aggregate.argument


def finished(plan: AnswerPlan, tables: Mapping[str, DataFrame]) -> Stage:
    """Groups → the columns of the answer, joined with the attributes that it shows."""
    question = plan.question

    def answer(groups: DataFrame) -> DataFrame:
        named = groups.select(*_named_columns(plan, groups))
        for table in dict.fromkeys(attribute.table for attribute in question.attributes):
            named = named.transform(_joined(plan, table, tables[table]))
        return named.select(*(column.name for column in question.answer_columns))

    return answer


def listed(plan: AnswerPlan, tables: Mapping[str, DataFrame]) -> Stage:
    """Partials that list rows → the columns of the answer."""
    columns = {name: plan.layout.kept[expression] for name, expression in plan.keys.items()}

    def answer(partials: DataFrame) -> DataFrame:
        rows = partials.select(*(f.col(column).alias(name) for name, column in columns.items()))
        return rows.transform(finished(plan, tables))

    return answer


def in_order(question: Question) -> Stage:
    """One sorted file by one task: no sampling pass over the input, and the sort may spill."""
    return lambda answer: answer.repartition(1).sortWithinPartitions(
        *(f.asc_nulls_first(column) for column in question.sort_columns)
    )


def _named_columns(plan: AnswerPlan, groups: DataFrame) -> list[Column]:
    question = plan.question
    columns = [
        f.expr(decoded(key.expression, column)).alias(key.name)
        for column, key in zip(plan.keys, question.keys, strict=True)
    ]
    for position, measure in enumerate(question.measures):
        expression = measure.expression
        value = expression.argument if isinstance(expression, Aggregate) else None
        is_kept = value is not None and expression.aggregation in ("min", "max")  # type: ignore[union-attr]
        text = decoded(value, f"m{position}") if is_kept and value is not None else f"m{position}"
        columns.append(f.expr(text).alias(measure.name))
    return columns + ([f.col(RANK)] if RANK in groups.columns else [])


def _joined(plan: AnswerPlan, table: str, rows: DataFrame) -> Stage:
    """Adds the attributes of one table to answer rows. An id that the table lacks takes the place of the
    name."""
    question = plan.question
    attributes = [attribute for attribute in question.attributes if attribute.table == table]
    key = question.identity(attributes[0])
    flag = matched_name(key)

    def with_attributes(answer: DataFrame) -> DataFrame:
        known = known_rows(table, [attribute.name for attribute in attributes])(rows)
        renamed = known.select(
            f.col(LAYOUT[table].key).alias("_joined_id"),
            f.lit(True).alias("_joined"),
            *(f.col(attribute.name).alias(f"_joined_{attribute.name}") for attribute in attributes),
        )
        if table in plan.small_tables:
            renamed = f.broadcast(renamed)
        joined = answer.join(renamed, on=f.col(key) == f.col("_joined_id"), how="left")
        values = [
            _value(attribute, f"_joined_{attribute.name}", key).alias(attribute.name)
            for attribute in attributes
        ]
        matched = f.coalesce("_joined", f.lit(False)).alias(flag)
        return joined.select(*(f.col(name) for name in answer.columns), *values, matched)

    return with_attributes


def known_rows(table: str, attributes: list[str]) -> Stage:
    """One row for each id: if an id is listed twice, the smallest values count."""

    def rows(listed_rows: DataFrame) -> DataFrame:
        key = LAYOUT[table].key
        smallest = [f.min(name).alias(name) for name in dict.fromkeys(attributes) if name != key]
        return listed_rows.groupBy(key).agg(*smallest) if smallest else listed_rows.select(key).distinct()

    return rows


def unknown_ids(plan: AnswerPlan, table: str, rows: DataFrame) -> Stage:
    """Partials → the ids whose attributes are keys, and which the table lacks."""
    attribute = next(attribute for attribute in plan.key_attributes if attribute.table == table)
    column = plan.layout.kept[identified_by(attribute)]

    def unknown(partials: DataFrame) -> DataFrame:
        ids = partials.select(f.col(column).alias("id")).where("id IS NOT NULL").distinct()
        known = rows.select(f.col(LAYOUT[table].key).alias("known_id"))
        if table in plan.small_tables:
            known = f.broadcast(known)
        return ids.join(known, on=f.col("id") == f.col("known_id"), how="leftanti")

    return unknown


def _with_key_attributes(plan: AnswerPlan, table: str, rows: DataFrame) -> Stage:
    attributes = list(
        dict.fromkeys(attribute for attribute in plan.key_attributes if attribute.table == table)
    )
    column = plan.layout.kept[identified_by(attributes[0])]

    def with_attributes(partials: DataFrame) -> DataFrame:
        known = known_rows(table, [attribute.name for attribute in attributes])(rows)
        renamed = known.select(
            f.col(LAYOUT[table].key).alias(f"{table}_id"),
            *(f.col(attribute.name).alias(_attribute_column(attribute)) for attribute in attributes),
        )
        if table in plan.small_tables:
            renamed = f.broadcast(renamed)
        joined = partials.join(renamed, on=f.col(column) == f.col(f"{table}_id"), how="left")
        for attribute in attributes:
            name = _attribute_column(attribute)
            joined = joined.withColumn(name, _value(attribute, name, column))
        return joined.drop(f"{table}_id")

    return with_attributes


def _value(attribute: ColumnRef, column: str, identity: str) -> Column:
    if attribute.name != LAYOUT[attribute.table].label:
        return f.col(column)
    return f.coalesce(f.col(column), f.col(identity).cast("string"))


def _attribute_column(column: ColumnRef | Aggregate) -> str:
    assert isinstance(column, ColumnRef)
    return f"{column.table}__{column.name}"
