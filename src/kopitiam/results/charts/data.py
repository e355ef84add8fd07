"""Selects the rows of an answer that a chart draws, in batches: an answer may be larger than memory.

Rows that are left out or added up as "others" are counted, so that the chart can say so.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.questions.definitions import RANK
from kopitiam.results.answers import Answers
from kopitiam.results.cells import Value
from kopitiam.results.charts.plan import Axis, ChartPlan

_ROW = "row number"  # no column can have this name
_EXACT_DIGITS = 38  # of Arrow's decimal numbers
EXACTLY = Context(prec=2 * _EXACT_DIGITS)
Figure = int | Decimal | None
Identity = Any  # of a value on an axis: an id, a name, a date


@dataclass(frozen=True)
class Item:
    """One drawn row, or several rows added up."""

    x: Identity
    x_value: Value
    figure: Figure
    series: Identity = None
    series_value: Value = None
    beside: tuple[Value, ...] = ()
    rank: int = 0
    row: int = 0  # number of the row in the answer


@dataclass(frozen=True)
class ChartData:
    """The rows that a chart draws, and what it leaves out."""

    items: list[Item]
    rows: int  # of the answer
    drawn: int  # of these; rows of the same `x` and series may be added up
    others: dict[Identity, Figure] = field(default_factory=dict)  # by `x`: the sum of rows that are not drawn
    lumped: int = 0  # rows that are in `others`
    only_others: tuple[Item, ...] = ()  # without figures: one for each `x` without a drawn row

    @property
    def on_x(self) -> list[Item]:
        """At least one item for every `x` of the chart."""
        return [*self.items, *self.only_others]

    @property
    def has_figures(self) -> bool:
        return any(item.figure is not None for item in self.items)


def first_rows(answers: Answers, plan: ChartPlan, most: int) -> ChartData:
    """The first rows of the answer."""
    items: list[Item] = []
    for table in _tables(answers, plan):
        items += _items(table.slice(0, most - len(items)), plan)
        if len(items) >= most:
            break
    return ChartData(items, answers.rows(plan.question.name), len(items))


def best_rows(answers: Answers, plan: ChartPlan, most: int, most_each: int) -> ChartData:
    """The first rows of each `x` by rank or by figure, for the first `most // most_each` values of `x`."""
    groups: dict[Identity, list[Item]] = {}
    most_groups = most // most_each
    for table in _tables(answers, plan):
        known = _rows_of_first_x(table, plan.x, groups, most_groups)
        for item in _items(_best_of_each(known, plan, most_each), plan):
            groups[item.x] = sorted([*groups[item.x], item], key=_preference(plan))[:most_each]
    items = [item for group in groups.values() for item in group]
    return ChartData(items, answers.rows(plan.question.name), len(items))


def series(answers: Answers, plan: ChartPlan, along: Axis | None, most_x: int, most_series: int) -> ChartData:
    """Rows of the first `most_x` values of `x`, and of the values of `along` with the highest peaks.

    Rows that share `x` and `along` are added up; the plan must allow that. In a stack, rows of other series
    are added up as others, for each `x`. Without `along` there is one series.
    """
    chosen = None if along is None else _largest_series(answers, plan, along, most_series)
    groups: dict[Identity, None] = {}
    items: dict[tuple[Identity, Identity], Item] = {}
    totals: dict[Identity, Decimal] = {}
    firsts: dict[Identity, Item] = {}
    counted = drawn = 0
    for table in _tables(answers, plan):
        known = _exact(_rows_of_first_x(table, plan.x, groups, most_x), plan.figures)
        for item in _added_up(known, plan, None):
            firsts.setdefault(item.x, replace(item, figure=None))
            totals[item.x] = EXACTLY.add(totals.get(item.x, Decimal(0)), item.figure or 0)
        kept = known
        if along is not None and chosen is not None:
            kept = known.filter(pc.is_in(known[along.identity], value_set=_values(known, along, chosen)))
        counted, drawn = counted + known.num_rows, drawn + kept.num_rows
        for item in _added_up(kept, plan, along):
            place = (item.x, item.series)
            items[place] = _plus(items[place], item) if place in items else item
    data = ChartData(list(items.values()), answers.rows(plan.question.name), drawn)
    if drawn == counted or not plan.is_whole or plan.mark not in ("bar", "area"):
        return data
    shown: dict[Identity, Decimal] = dict.fromkeys(totals, Decimal(0))
    for item in data.items:
        shown[item.x] = EXACTLY.add(shown[item.x], item.figure or 0)
    others: dict[Identity, Figure] = {x: EXACTLY.subtract(total, shown[x]) for x, total in totals.items()}
    is_drawn = {item.x for item in data.items}
    only_others = tuple(item for x, item in firsts.items() if x not in is_drawn)
    return replace(data, others=others, lumped=counted - drawn, only_others=only_others)


def _tables(answers: Answers, plan: ChartPlan) -> Iterator[pa.Table]:
    """Yields batches with the columns of the plan and the number of each row."""
    begin = 0
    for batch in answers.batches(plan.question.name, plan.columns):
        numbers = pa.array(range(begin, begin + batch.num_rows), pa.int64())
        begin += batch.num_rows
        yield pa.Table.from_batches([batch]).append_column(_ROW, numbers)


def _items(table: pa.Table, plan: ChartPlan) -> Iterator[Item]:
    color = plan.color
    for row in table.to_pylist():
        yield Item(
            row[plan.x.identity],
            row[plan.x.name],
            row[plan.figures.name],
            row[color.identity] if color else None,
            row[color.name] if color else None,
            tuple(row[axis.name] for axis in plan.beside),
            row.get(RANK, 0),
            row[_ROW],
        )


def _rows_of_first_x(table: pa.Table, x: Axis, groups: dict[Identity, Any], most: int) -> pa.Table:
    """The rows of the first `most` values of `x`, which are added to `groups`."""
    distinct = pc.unique(table[x.identity].combine_chunks())
    values = distinct.to_pylist()
    for value in values:
        if value not in groups and len(groups) < most:
            groups[value] = []
    known = [value for value in values if value in groups]
    if len(known) == len(values):
        return table
    return table.filter(pc.is_in(table[x.identity], value_set=pa.array(known, distinct.type)))


def _best_of_each(table: pa.Table, plan: ChartPlan, most: int) -> pa.Table:
    """The first `most` rows of each `x` by preference, so that few rows leave Arrow."""
    if plan.is_ranked and RANK in table.column_names:
        preference = [(RANK, "ascending")]
    else:
        preference = [(plan.y.name, "descending")]
    order: list[Any] = [(plan.x.identity, "ascending"), *preference, (_ROW, "ascending")]
    in_order = table.take(pc.sort_indices(table, order))
    codes = in_order[plan.x.identity].combine_chunks().dictionary_encode("encode").indices.to_numpy()
    begins = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[begins, len(codes)])
    places = np.arange(len(codes)) - np.repeat(begins, sizes)
    return in_order.filter(pa.array(places < most))


def _preference(plan: ChartPlan) -> Any:
    def by_rank(item: Item) -> tuple[int, int]:
        return item.rank, item.row

    def by_figure(item: Item) -> tuple[bool, Decimal, int]:
        return item.figure is None, Decimal(item.figure or 0).copy_negate(), item.row

    return by_rank if plan.is_ranked else by_figure


def _largest_series(answers: Answers, plan: ChartPlan, along: Axis, most: int) -> set[Identity]:
    """Exact in bounded memory: a dropped value was below `most` others, whose peaks only grow."""
    figure = plan.figures
    peaks: dict[Identity, tuple[Decimal, int]] = {}
    for table in _tables(answers, plan):
        grouped = table.group_by(along.identity).aggregate([(figure.name, "max"), (_ROW, "min")])
        for row in grouped.to_pylist():
            peak = row[f"{figure.name}_max"]
            height = Decimal("-Infinity") if peak is None else Decimal(peak)
            before = peaks.get(row[along.identity], (height, -row[f"{_ROW}_min"]))
            peaks[row[along.identity]] = max(height, before[0]), before[1]
        if len(peaks) > 4 * most:
            peaks = dict(_highest(peaks, most))
    return {value for value, _ in _highest(peaks, most)}


def _highest(
    peaks: dict[Identity, tuple[Decimal, int]], most: int
) -> list[tuple[Identity, tuple[Decimal, int]]]:
    return sorted(peaks.items(), key=lambda pair: pair[1], reverse=True)[:most]


def _exact(table: pa.Table, figure: Axis) -> pa.Table:
    """The table with figures as decimals, wide enough for sums beyond 64 bits."""
    column = table[figure.name]
    scale = column.type.scale if pa.types.is_decimal(column.type) else 0
    place = table.column_names.index(figure.name)
    return table.set_column(place, figure.name, column.cast(pa.decimal128(_EXACT_DIGITS, scale)))


def _sums(table: pa.Table, keys: list[str], figure: Axis) -> Iterable[dict[str, Any]]:
    sums: list[dict[str, Any]] = (
        table.group_by(keys).aggregate([(figure.name, "sum"), (_ROW, "min")]).to_pylist()
    )
    return sums


def _values(table: pa.Table, axis: Axis, values: Iterable[Identity]) -> pa.Array:
    return pa.array(list(values), table.schema.field(axis.identity).type)


def _added_up(table: pa.Table, plan: ChartPlan, along: Axis | None) -> Iterator[Item]:
    axes = [plan.x] if along is None else [plan.x, along]
    keys = list(dict.fromkeys(name for axis in axes for name in (axis.identity, axis.name)))
    for row in _sums(table, keys, plan.figures):
        yield Item(
            row[plan.x.identity],
            row[plan.x.name],
            row[f"{plan.figures.name}_sum"],
            row[along.identity] if along else None,
            row[along.name] if along else None,
            row=row[f"{_ROW}_min"],
        )


def _plus(one: Item, other: Item) -> Item:
    if one.figure is None or other.figure is None:
        return replace(one, figure=other.figure if one.figure is None else one.figure)
    return replace(one, figure=EXACTLY.add(one.figure, other.figure))
