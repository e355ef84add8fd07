"""Heat maps and histograms."""

from decimal import Decimal

from kopitiam.contracts.money import UNITS
from kopitiam.contracts.tables import Kind
from kopitiam.results.cells import cell_text, ringgit
from kopitiam.results.charts.canvas import LINE, Box, Canvas, Label, hover_text
from kopitiam.results.charts.colours import STEPS, colour_variable, step
from kopitiam.results.charts.data import ChartData
from kopitiam.results.charts.distribution import Bin, Distribution, round_width, units_text
from kopitiam.results.charts.labels import add_ticks, names_of_series, names_of_x, places
from kopitiam.results.charts.plan import Axis, ChartPlan
from kopitiam.results.names import fitted, printable, text_width

_NAME_ROOM = 220
_OPEN_GAP = 14  # pixels before the open bar


def heat_map(plan: ChartPlan, data: ChartData, figures: Axis) -> Canvas:
    """A cell for each `x` and `y`, coloured by the step that its figure falls into."""
    names, series = names_of_x(plan.x, data.items), names_of_series(plan.y, data.items)
    rows = places(plan.y, series)
    canvas = Canvas(None, figures.title, plan.x.title)
    texts = {value: series[value] if value in series.identities else str(value) for value in rows}
    canvas.left = 14 + max(min(text_width(printable(text)), _NAME_ROOM) for text in texts.values())
    canvas.height = len(rows) * (LINE + 2)
    at = places(plan.x, names)
    pitch = min(60.0, canvas.width / len(at))
    scale = _Steps([item.figure for item in data.items if item.figure is not None], figures)
    canvas.add_legend(scale.legend())
    cells = []
    for item in data.items:
        left, upper = at[item.x] * pitch, rows[item.series] * (LINE + 2)
        pairs = [
            (plan.x.name, names[item.x]),
            (plan.y.name, series[item.series]),
            (figures.name, cell_text(figures.column, item.figure)),
        ]
        colour = colour_variable("grid") if item.figure is None else scale.colour(Decimal(item.figure))
        cells.append((left, left + pitch - 1, upper, upper + LINE + 1, colour, hover_text(pairs)))
    canvas.add_cells(cells)
    canvas.add_labels(
        [
            Label(fitted(texts[value], _NAME_ROOM), -8, number * (LINE + 2) + LINE / 2, "end", texts[value])
            for value, number in rows.items()
        ]
    )
    ticks = [
        (number * pitch + pitch / 2, names[value] if value in names.identities else str(value))
        for value, number in at.items()
    ]
    add_ticks(canvas, ticks, pitch)
    return canvas


class _Steps:
    """Steps of one round width, from the smallest to the largest figure."""

    def __init__(self, figures: list[int | Decimal], axis: Axis) -> None:
        self._axis = axis
        self._unit = Decimal(1 if axis.kind is Kind.COUNT else UNITS)
        units = [int(Decimal(figure) * self._unit) for figure in figures]
        self._width, self._begin = round_width(min(units), max(units), int(self._unit), STEPS)
        self._last = (max(units) - self._begin) // self._width

    def colour(self, figure: Decimal) -> str:
        return self._shade((int(figure * self._unit) - self._begin) // self._width)

    def _shade(self, number: int) -> str:
        return step(number * (STEPS - 1) // self._last if self._last else STEPS - 1)

    def legend(self) -> list[tuple[str, str]]:
        bounds = [self._begin + number * self._width for number in range(self._last + 1)]
        texts = [cell_text(self._axis.column, Decimal(bound) / self._unit) for bound in bounds]
        return [(f"from {text}", self._shade(number)) for number, text in enumerate(texts)]


def histogram(plan: ChartPlan, spread: Distribution) -> Canvas:
    """Bars between round bounds. The last one may be open, and is then dashed and labelled."""
    canvas = Canvas("y", "rows", plan.x.title, left=64, right=24, height=260, is_whole=True)
    canvas.domain = (0, max(bin_.count for bin_ in spread.bins))
    has_open = spread.bins[-1].is_open
    pitch = (canvas.width - (_OPEN_GAP if has_open else 0)) / len(spread.bins)
    boxes, ticks = [], []
    for number, bin_ in enumerate(spread.bins):
        left = number * pitch + (_OPEN_GAP if bin_.is_open else 0)
        hover = hover_text([(plan.x.name, bin_text(spread.kind, bin_)), ("rows", f"{bin_.count:,}")])
        boxes.append(
            Box(0, bin_.count, left + 0.5, left + pitch - 0.5, colour_variable("bar"), hover, bin_.is_open)
        )
        ticks.append((left, _bound(spread.kind, bin_.first)))
    if not has_open:
        ticks.append((canvas.width, _bound(spread.kind, spread.bins[-1].beyond)))
    canvas.add_boxes(boxes)
    _add_bounds(canvas, ticks, pitch, has_open)
    if has_open:
        text = bin_text(spread.kind, spread.bins[-1])
        below = boxes[-1 - int(text_width(text) // pitch) :]  # the bars below the text
        y = canvas.height * (1 - max(box.end for box in below) / canvas.domain[1])
        canvas.add_labels([Label(text, canvas.width, y - 10, "end")])
    return canvas


def _add_bounds(canvas: Canvas, ticks: list[tuple[float, str]], pitch: float, has_open: bool) -> None:
    """Adds as many bounds as there is room for, and always that of the open bar."""
    last = [ticks.pop()] if has_open else []
    widest = max((text_width(text) for _, text in [*ticks, *last]), default=0) + 14
    every = max(1, -(-int(widest) // max(1, int(pitch))))
    kept = [tick for tick in ticks[::every] if not last or last[0][0] - tick[0] >= widest]
    canvas.add_labels([Label(text, x, canvas.height + 14, "middle") for x, text in [*kept, *last]])


def bin_text(kind: Kind, bin_: Bin) -> str:
    """`RM 74.00 to below RM 76.00`, or `RM 87.00 and more`."""
    first, beyond = (_exact(kind, units) for units in (bin_.first, bin_.beyond))
    if bin_.is_open:
        return f"{first} and more"
    return first if kind is Kind.COUNT and bin_.beyond - bin_.first == 1 else f"{first} to below {beyond}"


def _exact(kind: Kind, units: int) -> str:
    if kind is Kind.MONEY:
        return ringgit(units_text(kind, units))
    return f"{units:,}" if kind is Kind.COUNT else units_text(kind, units)


def _bound(kind: Kind, units: int) -> str:
    """Short, for the axis: `74`, `76.5`."""
    if kind is Kind.COUNT:
        return f"{units:,}"
    whole, part = divmod(abs(units), UNITS)
    decimals = f"{part:04d}".rstrip("0")
    return f"{'-' if units < 0 else ''}{whole:,}{'.' if decimals else ''}{decimals}"
