"""Values on the axes of a chart: their texts, order and places."""

from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import Function
from kopitiam.results.cells import EMPTY, Value, cell_text
from kopitiam.results.charts.canvas import Canvas, Label
from kopitiam.results.charts.data import Identity, Item
from kopitiam.results.charts.plan import Axis
from kopitiam.results.names import MarkedName, fitted, text_width

MOST_FILLED = 400  # places, including periods without a row
_PERIODS_OF_A_YEAR: dict[Function, tuple[str, int]] = {
    "year_month": ("-", 12),
    "year_half": ("-H", 2),
    "year_quarter": ("-Q", 4),
}
_TICK_ROOM = 110  # pixels of a label below the plot
_LEAST_ROOM = 180  # pixels that names have almost everywhere


class Names:
    """The text of each value; texts that look the same when shortened have their identity beside them."""

    def __init__(self, axis: Axis, pairs: Iterable[tuple[Identity, Value]]) -> None:
        texts = {identity: cell_text(axis.column, value) for identity, value in pairs}
        shared = Counter(fitted(text, _LEAST_ROOM) for text in texts.values())
        self._texts: dict[Identity, str] = {
            identity: MarkedName(text, f"({axis.identity} {identity})")
            if shared[fitted(text, _LEAST_ROOM)] > 1 and axis.identity != axis.name
            else text
            for identity, text in texts.items()
        }

    def __getitem__(self, identity: Identity) -> str:
        return self._texts.get(identity, EMPTY)

    @property
    def identities(self) -> list[Identity]:
        return list(self._texts)


def names_of_x(axis: Axis, items: Iterable[Item]) -> Names:
    """Names of `x` in the order of the values if they have one, else of the answer."""
    pairs = {item.x: item.x_value for item in sorted(items, key=lambda item: item.row)}
    return Names(axis, _in_order(axis, pairs))


def names_of_series(axis: Axis, items: Iterable[Item]) -> Names:
    """Names of series in the order of the values if they have one, else of the answer."""
    pairs = {item.series: item.series_value for item in sorted(items, key=lambda item: item.row)}
    return Names(axis, _in_order(axis, pairs))


def _in_order(axis: Axis, pairs: dict[Identity, Value]) -> list[tuple[Identity, Value]]:
    if not axis.is_ordered:
        return list(pairs.items())
    empty = [pair for pair in pairs.items() if pair[1] is None]
    known: list[tuple[Identity, Any]] = [pair for pair in pairs.items() if pair[1] is not None]
    return [*empty, *sorted(known, key=lambda pair: pair[1])]


def places(axis: Axis, names: Names) -> dict[Identity, int]:
    """The place of each value, counted from 0. Periods without a row keep an empty place."""
    identities = names.identities
    between = _filled(axis.function, [value for value in identities if value is not None])
    if between is None or len(between) > MOST_FILLED:
        return {identity: number for number, identity in enumerate(identities)}
    empty = [identity for identity in identities if identity is None]
    return {identity: number for number, identity in enumerate([*empty, *between])}


def _filled(function: Function | None, values: list[Identity]) -> list[Identity] | None:
    if function is None or not values:
        return None
    first, last = min(values), max(values)
    if isinstance(first, int):
        return list(range(first, last + 1)) if last - first <= MOST_FILLED else None
    if isinstance(first, date) and not isinstance(first, datetime):
        span = last.toordinal() - first.toordinal()
        days = range(first.toordinal(), last.toordinal() + 1)
        return [date.fromordinal(day) for day in days] if span <= MOST_FILLED else None
    if function in _PERIODS_OF_A_YEAR:
        return _periods(first, last, *_PERIODS_OF_A_YEAR[function])
    return None


def _periods(first: str, last: str, mark: str, each_year: int) -> list[str] | None:
    begin, end = (int(text[:4]) * each_year + int(text[4 + len(mark) :]) - 1 for text in (first, last))
    if end - begin > MOST_FILLED:
        return None
    digits = 2 if each_year == 12 else 1
    return [f"{n // each_year:04d}{mark}{n % each_year + 1:0{digits}d}" for n in range(begin, end + 1)]


def add_ticks(canvas: Canvas, ticks: Iterable[tuple[float, str]], step: float) -> None:
    """Adds labels below the plot, as many as there is room for; neighbours are `step` pixels apart."""
    texts = list(ticks)
    widest = max((min(text_width(text), _TICK_ROOM) for _, text in texts), default=0) + 12
    every = max(1, -(-int(widest) // max(1, int(step))))
    canvas.add_labels(
        [
            Label(fitted(text, max(_TICK_ROOM, step - 12)), x, canvas.height + 14, "middle", text)
            for x, text in texts[::every]
        ]
    )


def measured(axis: Axis, value: Value) -> float | None:
    """The figure or time as a number to scale; None for other values."""
    if isinstance(value, datetime):
        return value.timestamp() if value.tzinfo else (value - datetime(1970, 1, 1)).total_seconds()
    if isinstance(value, date):
        return float(value.toordinal())
    return float(value) if isinstance(value, int | Decimal) and axis.kind is not Kind.ID else None
