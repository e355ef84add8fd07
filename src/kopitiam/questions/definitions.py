"""Definitions of questions: one frozen value says what is read, kept, merged, ranked, shown and drawn."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import Aggregate, Column, Expression, Ratio, aggregates_in, columns_in
from kopitiam.questions.layout import LAYOUT

NamedFilter = Literal["@year", "@hour", "@amount"]
Mark = Literal["bar", "line", "point", "area", "rect", "histogram"]
Role = Literal["key", "measure", "attribute", "rank", "matched", "column"]
RANK = "rank"


@dataclass(frozen=True)
class Named:
    """A key or a measure: the name it has in the answer, and what it is."""

    name: str
    expression: Expression

    @property
    def kind(self) -> Kind:
        return self.expression.kind


@dataclass(frozen=True)
class Rank:
    """The first `top` groups by a measure, for each combination of the keys in `within`.

    `top` is None where the run's parameter says how many. Of equals the lowest other keys come first.
    """

    by: str
    within: tuple[str, ...]
    top: int | None
    is_ascending: bool = False


@dataclass(frozen=True)
class Chart:
    mark: Mark
    x: str
    y: str
    color: str = ""


@dataclass(frozen=True)
class Stages:
    """Names under which the work of a question is seen."""

    aggregate: str
    rank: str
    join: tuple[str, ...]


@dataclass(frozen=True)
class AnswerColumn:
    """A column of the answer as JSON, Parquet and xlsx have it."""

    name: str
    kind: Kind
    role: Role
    is_optional: bool = False
    attribute: Column | None = None  # of an attribute: which one


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    fact: str
    filters: tuple[NamedFilter | Expression, ...]
    keys: tuple[Named, ...]
    measures: tuple[Named, ...]
    rank: Rank | None
    shown: tuple[str, ...]  # the columns of the CSV, in order
    attributes: tuple[Column, ...]  # those among the shown columns
    order: tuple[str, ...]
    chart: Chart | None
    stages: Stages
    is_builtin: bool = False

    @property
    def lists_rows(self) -> bool:
        """Without measures the answer is rows of the fact."""
        return not self.measures

    @property
    def file_stem(self) -> str:
        return f"results_query_{self.name}" if self.is_builtin else f"results_{self.name}"

    @property
    def csv_name(self) -> str:
        return f"{self.file_stem}.csv"

    @cached_property
    def named(self) -> dict[str, Named]:
        return {each.name: each for each in (*self.keys, *self.measures)}

    @cached_property
    def partial(self) -> tuple[Any, ...]:
        """Questions with an equal value here are merged from one partial."""
        return (self.fact, frozenset(self.filters), self.keys, self.lists_rows)

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates that a partial holds for each key."""
        return tuple(dict.fromkeys(a for measure in self.measures for a in aggregates_in(measure.expression)))

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table that this question needs, in the order of the layout."""
        columns = [column for each in self._expressions() for column in columns_in(each)]
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
        return {
            table: tuple(name for name in LAYOUT[table].by_name if name in names)
            for table, names in needed.items()
        }

    def _expressions(self) -> Iterable[Expression]:
        yield from (each for each in self.filters if not isinstance(each, str))
        yield from (each.expression for each in (*self.keys, *self.measures))

    @cached_property
    def answer_columns(self) -> tuple[AnswerColumn, ...]:
        """Keys with their attributes, the rank behind the keys that it is within, measures, matches."""
        if self.lists_rows:
            return tuple(AnswerColumn(key.name, key.kind, "column", is_optional=True) for key in self.keys)
        columns: list[AnswerColumn] = []
        within = self.rank.within if self.rank else ()
        has_rank = self.rank is not None and self.rank.top != 1
        if has_rank and not within:
            columns.append(AnswerColumn(RANK, Kind.COUNT, "rank"))
        left = set(within)
        for key in self.keys:
            columns.append(AnswerColumn(key.name, key.kind, "key", is_optional=True))
            columns += [
                AnswerColumn(a.name, a.kind, "attribute", is_optional=True, attribute=a)
                for a in self.attributes
                if key.expression == identified_by(a)
            ]
            if has_rank and key.name in left:
                left.discard(key.name)
                if not left:
                    columns.append(AnswerColumn(RANK, Kind.COUNT, "rank"))
        columns += [AnswerColumn(m.name, m.kind, "measure", is_optional=True) for m in self.measures]
        columns += [
            AnswerColumn(matched_name(key.name), Kind.BOOLEAN, "matched")
            for key in self.keys
            if any(key.expression == identified_by(a) for a in self.attributes)
        ]
        return tuple(columns)

    def is_exact_ratio(self, name: str) -> bool:
        return isinstance(self.named[name].expression, Ratio)


def identified_by(attribute: Column) -> Column:
    """The fact's column whose value identifies the row that an attribute is of."""
    fact = next(
        name for name, table in LAYOUT.items() if table.references.get(attribute.reference) == attribute.table
    )
    return Column(fact, attribute.reference, Kind.ID)


def matched_name(key: str) -> str:
    return f"{key.removesuffix('_id')}_is_matched"
