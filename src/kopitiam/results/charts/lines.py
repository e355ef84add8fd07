"""Lines, areas and points: figures along a time, a number or names."""

from collections.abc import Sequence
from decimal import Decimal

from kopitiam.contracts.tables import Kind
from kopitiam.results.cells import cell_text
from kopitiam.results.charts.bars import OTHERS, category_colours
from kopitiam.results.charts.canvas import Canvas, Spec, hover_text
from kopitiam.results.charts.colours import CATEGORIES, colour_variable
from kopitiam.results.charts.data import ChartData, Figure, Identity, Item
from kopitiam.results.charts.labels import Names, add_ticks, measured, names_of_series, names_of_x, places
from kopitiam.results.charts.plan import Axis, ChartPlan

_MOST_MARKED = 1_000  # points of lines with a hover text
_MOST_SEEN = 80  # places up to which points are large
_DETAIL: Spec = {"field": "s", "type": "nominal"}
_STROKE: Spec = {"field": "c", "type": "nominal", "scale": None, "legend": None}
_HOVER: Spec = {"field": "h", "type": "nominal"}


def line(plan: ChartPlan, data: ChartData, along: Axis | None) -> Canvas:
    drawing = _Lines(plan, data, along)
    values = [value for series in drawing.series for value in drawing.points(series)]
    drawing.canvas.add_points(values, {"type": "line", "strokeWidth": 2}, detail=_DETAIL, stroke=_STROKE)
    drawing.mark_points(values)
    return drawing.canvas


def area(plan: ChartPlan, data: ChartData, along: Axis | None) -> Canvas:
    """Stacked areas if the figures add up to a whole; otherwise overlapping, half transparent ones."""
    drawing = _Lines(plan, data, along)
    if not plan.is_whole:
        values = [value for series in drawing.series for value in drawing.points(series)]
        mark: Spec = {"type": "area", "fillOpacity": 0.25, "line": False}
        drawing.canvas.add_points(values, mark, detail=_DETAIL, fill=_STROKE)
        drawing.canvas.add_points(values, {"type": "line", "strokeWidth": 2}, detail=_DETAIL, stroke=_STROKE)
        drawing.mark_points(values)
        return drawing.canvas
    base: dict[Identity, Decimal] = {}
    stacks = [drawing.points(series, base) for series in drawing.series]
    for values in stacks:
        drawing.canvas.add_points(values, {"type": "area"}, y2={"field": "z"}, detail=_DETAIL, fill=_STROKE)
    drawing.mark_points([value for values in stacks for value in values], is_seen=False)
    return drawing.canvas


def points(plan: ChartPlan, data: ChartData) -> Canvas:
    """A point for each row. More than ten series have one colour, and their names only on hover."""
    has_few = len({item.series for item in data.items}) <= CATEGORIES
    drawing = _Lines(plan, data, plan.color if has_few else None)
    values = [value for series in drawing.series for value in drawing.points(series)]
    drawing.canvas.add_points(
        [value for value in values if value["y"] is not None],
        {"type": "point", "filled": True, "size": 40, "opacity": 0.75},
        fill=_STROKE,
        description=_HOVER,
    )
    return drawing.canvas


class _Lines:
    """The series of a chart and the places of their points."""

    def __init__(self, plan: ChartPlan, data: ChartData, along: Axis | None) -> None:
        self.plan, self.along = plan, along
        self.items = data.items
        self.others = data.others if data.lumped else {}
        self.canvas = Canvas("y", plan.y.title, plan.x.title, left=64, right=20)
        self.canvas.is_whole = plan.y.kind is Kind.COUNT
        self.on_x = data.on_x
        self.names = names_of_x(plan.x, self.on_x)
        self.slots: list[Identity] = []  # all places, if they are not to scale
        self.places = self._places()
        self.series: list[Identity | None] = [None]
        self.series_names: Names | None = None
        if along is not None:
            self.series_names = names_of_series(along, self.items)
            self.series = list(self.series_names.identities)
            self._add_legend(self.series_names)
        if self.others:
            self.series.append(OTHERS)

    def _add_legend(self, names: Names) -> None:
        entries = [(names[series], self.colour(series)) for series in names.identities]
        self.canvas.add_legend([*entries, (OTHERS, colour_variable("others"))] if self.others else entries)

    def colour(self, series: Identity | None) -> str:
        if self.series_names is None:
            return colour_variable("bar")
        return category_colours(self.series_names)(series)

    def _places(self) -> dict[Identity, float]:
        """Positions in pixels: to scale for figures and times, else evenly spaced."""
        axis, names = self.plan.x, self.names
        values = {item.x: item.x_value for item in self.on_x}
        numbers = {x: measured(axis, value) for x, value in values.items()}
        is_period = axis.function is not None and axis.kind is not Kind.DATE
        if is_period or not axis.is_ordered or None in numbers.values() or len(numbers) < 2:
            slots = places(axis, names)
            self.slots = list(slots)
            pitch = self.canvas.width / len(slots)
            ticks = [(n * pitch + pitch / 2, _tick(names, value)) for value, n in slots.items()]
            add_ticks(self.canvas, ticks, pitch)
            return {value: n * pitch + pitch / 2 for value, n in slots.items()}
        known = {x: number for x, number in numbers.items() if number is not None}
        low, high = min(known.values()), max(known.values())
        at = {x: (number - low) / ((high - low) or 1) * self.canvas.width for x, number in known.items()}
        self._add_scaled_ticks(sorted(at, key=at.__getitem__), at)
        return at

    def _add_scaled_ticks(self, ordered: Sequence[Identity], at: dict[Identity, float]) -> None:
        """Adds ticks at values of the data, about a label's width apart."""
        ticks: list[tuple[float, str]] = []
        for value in ordered:
            if not ticks or at[value] - ticks[-1][0] >= 120:
                ticks.append((at[value], _tick(self.names, value)))
        add_ticks(self.canvas, ticks, self.canvas.width)

    def points(self, series: Identity | None, base: dict[Identity, Decimal] | None = None) -> list[Spec]:
        """Points of a series from left to right; with `base`, stacked on it and added to it."""
        is_rest = bool(self.others) and series == OTHERS
        name = OTHERS if is_rest else self.series_names[series] if self.series_names else ""
        colour = colour_variable("others") if is_rest else self.colour(series)
        values: list[Spec] = []
        for x, figure, hover in sorted(self._own(series, is_rest, name), key=lambda own: self.places[own[0]]):
            value: Spec = {"x": self.places[x], "s": name, "c": colour}
            value["y"] = None if figure is None else float(figure)
            if base is not None:
                below = base.get(x, Decimal(0))
                base[x] = below + Decimal(figure or 0)
                value |= {"y": float(base[x]), "z": float(below)}
            values.append(value | {"h": self.canvas.add_text(hover) if hover else ""})
        return values

    def _own(self, series: Identity | None, is_rest: bool, name: str) -> list[tuple[Identity, Figure, str]]:
        """Place, figure and hover text of each point. A period without a row breaks the line."""
        if is_rest:
            own = [(x, figure, self._hover(x, name, figure)) for x, figure in self.others.items()]
        else:
            own = [
                (item.x, item.figure, self._hover(item.x, self._name(item), item.figure))
                for item in self.items
                if self.along is None or item.series == series
            ]
        present = {x for x, *_ in own}
        return own + [(x, None, "") for x in self.slots if x not in present]

    def _name(self, item: Item) -> str:
        color = self.plan.color
        return "" if color is None else cell_text(color.column, item.series_value)

    def _hover(self, x: Identity, series: str, figure: Figure) -> str:
        pairs = [(self.plan.x.name, self.names[x])]
        if self.plan.color is not None:
            pairs.append((self.plan.color.name, series))
        return hover_text([*pairs, (self.plan.y.name, cell_text(self.plan.y.column, figure))])

    def mark_points(self, values: Sequence[Spec], *, is_seen: bool = True) -> None:
        """Adds points with hover texts, unless there are too many."""
        if len(self.items) > _MOST_MARKED:
            return
        shown = [value for value in values if value["y"] is not None and value["h"]]
        size = 26 if len(self.places) <= _MOST_SEEN else 8
        mark: Spec = {"type": "point", "filled": True, "size": size, "opacity": 1}
        if not is_seen:
            mark |= {"size": 80, "opacity": 0}
        self.canvas.add_points(shown, mark, fill=_STROKE, description=_HOVER)


def _tick(names: Names, value: Identity) -> str:
    return names[value] if value in names.identities else str(value)
