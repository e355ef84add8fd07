"""The first groups of a question with a rank: merged groups → ranked groups.

A few groups are kept in memory, by numbers or structs that are compared; more are sorted by a window, which
spills to disk. All ways give the same groups.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kopitiam.pipeline.compiler.answers import AnswerPlan, Stage
from kopitiam.pipeline.compiler.bounds import LARGEST, Interval
from kopitiam.pipeline.compiler.partials import is_text
from kopitiam.questions.definitions import RANK, Rank
from kopitiam.questions.expressions import Aggregate

_MOST_IN_MEMORY = 1_000  # groups of a rank; Spark keeps them for up to 128 combinations of keys at once


def ranked_groups(plan: AnswerPlan) -> Stage:
    """The first groups by a measure, with their rank; all groups if the question has no rank."""
    rank = plan.question.rank
    if rank is None:
        return lambda groups: groups
    top = plan.parameters.top if rank.top is None else rank.top
    names = [measure.name for measure in plan.question.measures]
    return _Ranking(plan, rank, top, f"m{names.index(rank.by)}").ranked


@dataclass(frozen=True)
class _Places:
    """SQL for the place of a group, of which the largest is first, and for what is made again from it: keys
    and measures, by column, from a place named `winner`."""

    place: str
    keys: Mapping[str, str]
    measures: Mapping[str, str]


@dataclass(frozen=True)
class _Ranking:
    plan: AnswerPlan
    rank: Rank
    top: int
    by: str

    def ranked(self, groups: DataFrame) -> DataFrame:
        if self._needs_window:
            return self._by_window(groups)
        return self._by_aggregate(groups, self._numbers() or self._structs())

    @property
    def _within(self) -> list[str]:
        named = zip(self.plan.keys, self.plan.question.keys, strict=True)
        return [column for column, key in named if key.name in self.rank.within]

    @property
    def _others(self) -> list[str]:
        return [column for column in self.plan.keys if column not in self._within]

    @property
    def _needs_window(self) -> bool:
        """Whether the aggregate cannot rank the groups. It keeps the first groups in memory, while a window
        spills to disk: they must be few and short. It also negates keys for their order, which texts do not
        allow."""
        carried = [self.plan.keys[key] for key in self._others]
        carried += [measure.expression for measure in self.plan.question.measures]
        return self.top > _MOST_IN_MEMORY or any(map(is_text, carried))

    def _by_window(self, groups: DataFrame) -> DataFrame:
        measure = f.col(self.by)
        first = measure.asc_nulls_last() if self.rank.is_ascending else measure.desc_nulls_last()
        order = Window.partitionBy(*self._within).orderBy(
            first, *(f.asc_nulls_first(k) for k in self._others)
        )
        numbered = groups.withColumn(RANK, f.row_number().over(order).cast("long"))
        return numbered.where(f.col(RANK) <= self.top)

    def _by_aggregate(self, groups: DataFrame, places: _Places) -> DataFrame:
        placed = groups.select(*self._within, f.expr(places.place).alias("place"))
        best = f.array(f.max("place")) if self.top == 1 else f.max_by("place", "place", self.top)
        best_groups = placed.groupBy(*self._within).agg(best.alias("best"))
        winners = best_groups.select(*self._within, f.posexplode("best").alias("position", "winner"))
        made = [f.expr(sql).alias(name) for name, sql in {**places.keys, **places.measures}.items()]
        rank = (f.col("position") + 1).cast("long").alias(RANK)
        return winners.where("winner IS NOT NULL").select(*self._within, *made, rank)

    def _structs(self) -> _Places:
        """Structs, whose order is that of the ranks: the measure, then lower keys, empty ones first. They
        also carry the other measures."""
        place = [f"{'-' if self.rank.is_ascending else ''}{self.by} AS place"]
        for key in self._others:
            place += [f"{key} IS NULL AS {key}_is_null", f"-{key} AS {key}_tie"]
        carried = [f"m{i}" for i in range(len(self.plan.question.measures))]
        return _Places(
            f"struct({', '.join([*place, *carried])})",
            {key: f"-winner.{key}_tie" for key in self._others},
            {name: f"winner.{name}" for name in carried},
        )

    def _numbers(self) -> _Places | None:
        """Numbers, whose digits are a count and the keys: they are compared in a third of the time. A lower
        key has a higher digit, an empty one the highest. None if the groups have other measures, if the
        bounds of a column are not known, or if 64 bits have no room for all digits."""
        most, bounds = self._greatest_count(), self._bounds_of_keys()
        if most is None or bounds is None:
            return None
        bases = {key: greatest - least + 2 for key, (least, greatest) in bounds.items()}
        if (most + 1) * math.prod(bases.values()) > LARGEST:
            return None
        place = f"({most}L - {self.by})" if self.rank.is_ascending else self.by
        for key, (_, greatest) in bounds.items():
            place = f"({place} * {bases[key]}L + coalesce({greatest}L - {key}, {bases[key] - 1}L))"
        keys, rest = {}, "winner"
        for key, (_, greatest) in reversed(bounds.items()):
            keys[key] = f"{greatest}L - nullif({rest} % {bases[key]}L, {bases[key] - 1}L)"
            rest = f"({rest} div {bases[key]}L)"
        return _Places(place, keys, {self.by: f"{most}L - {rest}" if self.rank.is_ascending else rest})

    def _greatest_count(self) -> int | None:
        """More than any group can have, if a count is the only measure."""
        [measure, *others] = (measure.expression for measure in self.plan.question.measures)
        if others or not isinstance(measure, Aggregate) or measure.aggregation != "count":
            return None
        counted = self.plan.bounds.get(self.plan.layout.aggregates[measure])
        return None if counted is None else self.plan.partial_rows * counted[1]

    def _bounds_of_keys(self) -> dict[str, Interval] | None:
        columns = {key: self.plan.layout.kept.get(self.plan.keys[key], "") for key in self._others}
        known = {
            key: self.plan.bounds[column] for key, column in columns.items() if column in self.plan.bounds
        }
        return known if len(known) == len(columns) else None
