"""Definitions of questions as frozen values: what is read, kept, merged, ranked, shown and drawn.

They are read in `catalog` and `validation`; the plans that the pipeline derives from them are in `plans`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import (
    Aggregate,
    ColumnRef,
    Constant,
    Expression,
    aggregates_in,
    columns_in,
    parts_of,
)
from kopitiam.questions.layout import LAYOUT

NamedFilter = Literal["@year", "@hour", "@amount"]
Mark = Literal["bar", "line", "point", "area", "rect", "histogram"]
Role = Literal["key", "measure", "attribute", "rank", "matched", "column"]
FILTERS: tuple[NamedFilter, ...] = get_args(NamedFilter)  # in the order in which rows pass them
RANK = "rank"
_LAYOUT_ORDER = tuple(LAYOUT)


@dataclass(frozen=True)
class Named:
    """A key or a measure: its name in the answer, and its expression."""

    name: str
    expression: Expression

    @property
    def kind(self) -> Kind:
        return self.expression.kind


@dataclass(frozen=True)
class Rank:
    """Keeps the first `top` groups by a measure, for each combination of the keys in `within`.

    `top` is None if it is the run's parameter. Ties go to the lowest other keys.
    """

    by: str
    within: tuple[str, ...]
    top: int | None
    is_ascending: bool = False


@dataclass(frozen=True)
class Chart:
    """The chart that a definition names, by its columns."""

    mark: Mark
    x: str
    y: str
    color: str = ""


@dataclass(frozen=True)
class Stages:
    """Names of the stages of a question in the status of a run."""

    aggregate: str
    rank: str
    join: tuple[str, ...]


@dataclass(frozen=True)
class AnswerColumn:
    """A column of the answer in JSON, Parquet and xlsx."""

    name: str
    kind: Kind
    role: Role
    is_optional: bool = False
    attribute: ColumnRef | None = None  # only of attributes


@dataclass(frozen=True)
class Question:
    """One checked definition. Everything that depends on the question alone is derived here."""

    name: str
    title: str
    fact: str
    filters: tuple[NamedFilter | Expression, ...]
    keys: tuple[Named, ...]
    measures: tuple[Named, ...]
    rank: Rank | None
    shown: tuple[str, ...]  # columns of the CSV, in order
    attributes: tuple[ColumnRef, ...]  # among the shown columns
    order: tuple[str, ...]
    chart: Chart | None
    stages: Stages
    is_builtin: bool = False
    definition: str = field(default="", compare=False)  # JSON; keys and measures as pairs

    @property
    def lists_rows(self) -> bool:
        """Whether the answer lists rows of the fact, since there are no measures."""
        return not self.measures

    @property
    def short_name(self) -> str:
        """`Q2.1` for a question of the catalog, else its name."""
        return f"Q{self.name.replace('_', '.')}" if self.is_builtin else self.name

    @property
    def file_stem(self) -> str:
        return f"results_query_{self.name}" if self.is_builtin else f"results_{self.name}"

    def file_name(self, form: str) -> str:
        """The name of the answer's file: `results_query_3.csv`, `results_sales_by_hour.parquet`."""
        return f"{self.file_stem}.{form}"

    @cached_property
    def named(self) -> dict[str, Named]:
        """Keys and measures by name."""
        return {named.name: named for named in (*self.keys, *self.measures)}

    @cached_property
    def partial(self) -> tuple[Any, ...]:
        """Questions with equal values here share one partial."""
        return (self.fact, frozenset(self.filters), self.kept, self.lists_rows)

    @cached_property
    def kept(self) -> tuple[Expression, ...]:
        """The values that a partial groups rows by: keys, and the arguments of `count(distinct …)`.

        Attributes are looked up behind the barrier, so the partial has the id in place of an attribute.
        """
        parts = [part for key in self.keys for part in _without_attributes(key.expression)]
        distinct = [a.argument for a in self.aggregates if a.aggregation == "count_distinct" and a.argument]
        return tuple(dict.fromkeys([*parts, *distinct]))

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates of all measures, each once."""
        return tuple(dict.fromkeys(a for measure in self.measures for a in aggregates_in(measure.expression)))

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns that this question needs, by table, in the order of the layout."""
        columns = [column for expression in self._expressions() for column in columns_in(expression)]
        needed: dict[str, set[str]] = {self.fact: set()}
        for column in (*columns, *self.attributes):
            needed.setdefault(column.table, set()).add(column.name)
            if column.is_attribute:
                needed[self.fact].add(column.reference)
                needed[column.table].add(LAYOUT[column.table].key)
        if "@year" in self.filters or "@hour" in self.filters:
            needed[self.fact].add("created_at")
        if "@amount" in self.filters:
            needed[self.fact].add("final_amount")
        if not needed[self.fact]:
            needed[self.fact].add("created_at")  # counting rows takes at least one column
        return {
            table: tuple(name for name in LAYOUT[table].by_name if name in names)
            for table, names in sorted(needed.items(), key=lambda item: _LAYOUT_ORDER.index(item[0]))
        }

    def _expressions(self) -> Iterable[Expression]:
        yield from (condition for condition in self.filters if not isinstance(condition, str))
        yield from (named.expression for named in (*self.keys, *self.measures))

    @cached_property
    def answer_columns(self) -> tuple[AnswerColumn, ...]:
        """Keys with their attributes, the rank after the keys of `within`, measures, `…_is_matched`."""
        columns: list[AnswerColumn] = []
        within = self.rank.within if self.rank else ()
        has_rank = self.rank is not None and self.rank.top != 1
        if has_rank and not within:
            columns.append(AnswerColumn(RANK, Kind.COUNT, "rank"))
        pending = set(within)
        for key in self.keys:
            columns.append(AnswerColumn(key.name, key.kind, "key", is_optional=True))
            columns += [
                AnswerColumn(a.name, a.kind, "attribute", is_optional=True, attribute=a)
                for a in self.attributes
                if key.name == self.identity(a)
            ]
            if has_rank and key.name in pending:
                pending.discard(key.name)
                if not pending:
                    columns.append(AnswerColumn(RANK, Kind.COUNT, "rank"))
        columns += [AnswerColumn(m.name, m.kind, "measure", is_optional=True) for m in self.measures]
        columns += [
            AnswerColumn(matched_name(key.name), Kind.BOOLEAN, "matched")
            for key in self.keys
            if any(key.name == self.identity(a) for a in self.attributes)
        ]
        return tuple(columns)

    @cached_property
    def columns_by_name(self) -> dict[str, AnswerColumn]:
        return {column.name: column for column in self.answer_columns}

    @cached_property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns that rows of the answer are sorted by; together they leave no ties."""
        return tuple(dict.fromkeys([*self.order, *(key.name for key in self.keys)]))

    @cached_property
    def looked_up(self) -> tuple[str, ...]:
        """The tables that attributes are looked up in."""
        in_keys = [c for key in self.keys for c in columns_in(key.expression) if c.is_attribute]
        return tuple(dict.fromkeys(attribute.table for attribute in (*in_keys, *self.attributes)))

    def identity(self, attribute: ColumnRef) -> str:
        """The first key that is the id of a shown attribute."""
        return next(key.name for key in self.keys if key.expression == identified_by(attribute))


def _without_attributes(expression: Expression) -> list[Expression]:
    """Splits an expression into its largest parts without attributes, and the ids of its attributes."""
    if isinstance(expression, ColumnRef) and expression.is_attribute:
        return [identified_by(expression)]
    if not any(column.is_attribute for column in columns_in(expression)):
        return [] if isinstance(expression, Constant) else [expression]
    return [part for below in parts_of(expression) for part in _without_attributes(below)]


def identified_by(attribute: ColumnRef) -> ColumnRef:
    """The column of the fact that holds the id of an attribute's row."""
    fact = next(
        name for name, table in LAYOUT.items() if table.references.get(attribute.reference) == attribute.table
    )
    return ColumnRef(fact, attribute.reference, Kind.ID)


def matched_name(key: str) -> str:
    """The column that says whether the table of a key's attributes has its id."""
    return f"{key.removesuffix('_id')}_is_matched"
