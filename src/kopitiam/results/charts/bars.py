"""Bar charts: labelled rows, columns along a time or a number, and stacks of figures that add up."""

import functools
from collections.abc import Callable, Iterable
from decimal import Decimal

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import RANK
from kopitiam.results.cells import cell_text
from kopitiam.results.charts.canvas import LINE, Box, Canvas, Label, hover_text, named_figure
from kopitiam.results.charts.colours import CATEGORIES, category, colour_variable, step
from kopitiam.results.charts.data import EXACTLY, ChartData, Figure, Identity, Item
from kopitiam.results.charts.labels import Names, add_ticks, names_of_series, names_of_x, places
from kopitiam.results.charts.plan import Axis, ChartPlan
from kopitiam.results.names import fitted, printable, text_width

OTHERS = "others"
_NAME_ROOM = 220  # pixels left of the bars
_FIGURE_ROOM = 380  # pixels right of them
_GAP = 8  # between groups of bars
_STEP_OF_RANK = (6, 4, 3, 2)
Colours = Callable[[Identity], str]
Part = tuple[str, str, Figure]  # name, colour and figure of a part of a stack
Parts = dict[Identity, list[Part]]


def labelled_rows(plan: ChartPlan, data: ChartData) -> Canvas:
    """A horizontal bar for each row, with name and exact figure beside it, grouped by `x`."""
    names = names_of_x(plan.x, data.items)
    groups = {x: _group(plan, data, x) for x in names.identities}
    colours, legend = _colours(plan, data.items)
    labels = _labels(plan, data.items)
    canvas = Canvas("x", plan.y.title, is_whole=plan.y.kind is Kind.COUNT)
    canvas.left = 14 + max(min(text_width(printable(names[x])), _NAME_ROOM) for x in groups)
    canvas.right = 16 + max(min(text_width(label), _FIGURE_ROOM) for label in labels.values())
    canvas.domain = domain(item.figure for item in data.items)
    boxes, texts, top = [], [], 0.0
    gap = _GAP if len(groups) < len(data.items) else 4
    for x, items in groups.items():
        middle = top + LINE * len(items) / 2
        texts.append(Label(fitted(names[x], _NAME_ROOM), -8, middle, "end", names[x]))
        for item in items:
            figure = float(item.figure or 0)
            hover = _hover(plan, names[x], item)
            boxes.append(Box(0, figure, top + 1, top + LINE - 2, colours(item.series), hover))
            texts.append(
                Label(labels[item], max(canvas.at(0), canvas.at(figure)) + 6, top + LINE / 2, whole=hover)
            )
            top += LINE
        top += gap
    canvas.height = top
    if legend:
        canvas.add_legend(legend)
    canvas.add_boxes(boxes)
    canvas.add_labels(texts)
    return canvas


def _group(plan: ChartPlan, data: ChartData, x: Identity) -> list[Item]:
    def order(item: Item) -> tuple[int, int]:
        return (item.rank, item.row) if plan.is_ranked else (0, item.row)

    return sorted((item for item in data.items if item.x == x), key=order)


def _labels(plan: ChartPlan, items: list[Item]) -> dict[Item, str]:
    """The text beside each bar: the name of its colour, further names, the figure."""
    color = plan.color
    is_named = color is not None and color.name not in (RANK, plan.x.name)
    names = names_of_series(color, items) if color is not None and is_named else None
    labels = {}
    for item in items:
        texts = [names[item.series]] if names is not None else []
        texts += [cell_text(axis.column, value) for axis, value in zip(plan.beside, item.beside, strict=True)]
        labels[item] = named_figure(texts, cell_text(plan.y.column, item.figure), _FIGURE_ROOM)
    return labels


def _hover(plan: ChartPlan, name: str, item: Item) -> str:
    pairs = [(plan.x.name, name)]
    if plan.color is not None and plan.color.name != plan.x.name:
        pairs.append((plan.color.name, cell_text(plan.color.column, item.series_value)))
    pairs += [
        (axis.name, cell_text(axis.column, value))
        for axis, value in zip(plan.beside, item.beside, strict=True)
    ]
    return hover_text([*pairs, (plan.y.name, cell_text(plan.y.column, item.figure))])


def _colours(plan: ChartPlan, items: Iterable[Item]) -> tuple[Colours, list[tuple[str, str]]]:
    """The colour of each bar, and a legend for ranks; other names are written beside the bars."""
    color = plan.color
    if color is None:
        return lambda _: colour_variable("bar"), []
    names = names_of_series(color, items)
    if color.name == RANK:
        shades = {rank: step(_STEP_OF_RANK[min(int(rank or 1), 4) - 1]) for rank in names.identities}
        return shades.__getitem__, [(f"{RANK} {names[rank]}", shades[rank]) for rank in names.identities]
    if len(names.identities) > CATEGORIES:
        return lambda _: colour_variable("bar"), []
    return category_colours(names), []


def category_colours(names: Names) -> Colours:
    numbers = {identity: number for number, identity in enumerate(names.identities)}
    return lambda identity: category(numbers[identity])


def columns(plan: ChartPlan, data: ChartData) -> Canvas:
    """A column for each `x`; figures are shown on hover."""
    names = names_of_x(plan.x, data.items)
    canvas = Canvas("y", plan.y.title, plan.x.title, left=64, is_whole=plan.y.kind is Kind.COUNT)
    at, width = _bands(canvas, plan.x, names)
    shades: dict[Identity, str] = {}
    rest = colour_variable("bar")
    if plan.color is not None and plan.color.name != plan.x.name:
        series, rest = names_of_series(plan.color, data.items), colour_variable("others")
        shades = {identity: category(n) for n, identity in enumerate(series.identities[:CATEGORIES])}
        entries = [(series[identity], shade) for identity, shade in shades.items()]
        if len(series.identities) > len(shades):
            entries.append((OTHERS, rest))
        canvas.add_legend(entries)
    boxes = [
        Box(
            0,
            float(item.figure or 0),
            at[item.x],
            at[item.x] + width,
            shades.get(item.series, rest),
            _hover(plan, names[item.x], item),
        )
        for item in data.items
    ]
    canvas.add_boxes(boxes)
    return canvas


def stacked(plan: ChartPlan, data: ChartData, along: Axis) -> Canvas:
    """A stack of parts for each `x`: columns along a time or a number, else rows."""
    names, series = names_of_x(plan.x, data.on_x), names_of_series(along, data.items)
    colours = category_colours(series)
    parts: Parts = {x: [] for x in names.identities}
    for item in sorted(data.items, key=lambda item: series.identities.index(item.series)):
        parts[item.x].append((series[item.series], colours(item.series), item.figure))
    for x, figure in data.others.items():
        if figure:
            parts[x].append((OTHERS, colour_variable("others"), figure))
    legend = [(series[identity], colours(identity)) for identity in series.identities]
    if data.lumped:
        legend.append((OTHERS, colour_variable("others")))
    if plan.x.is_ordered:
        return _stacked_columns(plan, along, names, parts, legend)
    return _stacked_rows(plan, along, names, parts, legend)


def _stacked_columns(
    plan: ChartPlan, along: Axis, names: Names, parts: Parts, legend: list[tuple[str, str]]
) -> Canvas:
    canvas = Canvas("y", plan.y.title, plan.x.title, left=64, is_whole=plan.y.kind is Kind.COUNT)
    at, width = _bands(canvas, plan.x, names)
    canvas.add_legend(legend)
    canvas.add_boxes(
        [box for x in parts for box in _stack(plan, along, names[x], parts[x], (at[x], at[x] + width))]
    )
    return canvas


def _stacked_rows(
    plan: ChartPlan, along: Axis, names: Names, parts: Parts, legend: list[tuple[str, str]]
) -> Canvas:
    """Horizontal stacks, with the exact sum beside each."""
    canvas = Canvas("x", plan.y.title, is_whole=plan.y.kind is Kind.COUNT)
    sums = {x: _sum(figure for *_, figure in parts[x]) for x in parts}
    texts = {x: cell_text(plan.y.column, figure) for x, figure in sums.items()}
    canvas.left = 14 + max(min(text_width(printable(names[x])), _NAME_ROOM) for x in parts)
    canvas.right = 16 + max(map(text_width, texts.values()))
    canvas.domain = domain(
        _sum(f for *_, f in own if is_up(f)) for own in parts.values() for is_up in (_is_up, _is_down)
    )
    canvas.height = len(parts) * (LINE + 4)
    canvas.add_legend(legend)
    boxes, labels = [], []
    for number, x in enumerate(parts):
        top = number * (LINE + 4)
        stack = _stack(plan, along, names[x], parts[x], (top + 1, top + LINE - 2))
        boxes += stack
        end = max([canvas.at(0), *(canvas.at(max(box.begin, box.end)) for box in stack)])
        labels.append(Label(fitted(names[x], _NAME_ROOM), -8, top + LINE / 2, "end", names[x]))
        labels.append(Label(texts[x], end + 6, top + LINE / 2))
    canvas.add_boxes(boxes)
    canvas.add_labels(labels)
    return canvas


def _stack(
    plan: ChartPlan, along: Axis, name: str, parts: list[Part], edges: tuple[float, float]
) -> list[Box]:
    """Boxes of one stack. Exact figures are added, ends are floats; negative parts go the other way."""
    boxes = []
    up = down = Decimal(0)
    for part, colour, figure in parts:
        size = Decimal(figure or 0)
        begin = up if size >= 0 else down
        end = begin + size
        up, down = (end, down) if size >= 0 else (up, end)
        pairs = [
            (plan.x.name, name),
            (along.name, part),
            (plan.y.name, cell_text(plan.y.column, figure)),
        ]
        boxes.append(Box(float(begin), float(end), *edges, colour, hover_text(pairs)))
    return boxes


def _bands(canvas: Canvas, axis: Axis, names: Names) -> tuple[dict[Identity, float], float]:
    """The left edge of each column and their common width; adds labels below."""
    numbers = places(axis, names)
    pitch = canvas.width / len(numbers)
    width = max(pitch * 0.82, pitch - 6) if pitch > 4 else pitch
    shift = (pitch - width) / 2
    ticks = [
        (number * pitch + pitch / 2, names[value] if value in names.identities else str(value))
        for value, number in numbers.items()
    ]
    add_ticks(canvas, ticks, pitch)
    return {value: number * pitch + shift for value, number in numbers.items()}, width


def domain(figures: Iterable[Figure]) -> tuple[float, float]:
    """The smallest and largest figure, with 0 between or at an end."""
    known = [0.0, *(float(figure) for figure in figures if figure is not None)]
    low, high = min(known), max(known)
    return (low, high) if high > low else (0.0, 1.0)


def _sum(figures: Iterable[Figure]) -> Decimal:
    return functools.reduce(EXACTLY.add, (Decimal(figure or 0) for figure in figures), Decimal(0))


def _is_up(figure: Figure) -> bool:
    return (figure or 0) >= 0


def _is_down(figure: Figure) -> bool:
    return (figure or 0) < 0
