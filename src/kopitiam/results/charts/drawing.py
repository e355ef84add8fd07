"""Draws the chart of an answer as a specification, with captions about rows that are left out.

How bars are arranged follows from the definition and the number of rows:
- up to 40 rows, or rows that neither add up nor follow a time or a number: a bar for each row, below one
  another, with its exact figure beside it, at most 120 bars and 10 of one `x`;
- one row for each `x` along a time or a number: columns, at most 400;
- rows that add up to a whole: stacked by colour, the 10 largest series and the sum of the others.
"""

from dataclasses import dataclass, replace

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import Question
from kopitiam.results.answers import Answers
from kopitiam.results.cells import ringgit
from kopitiam.results.charts import bars, grids, lines
from kopitiam.results.charts.canvas import Canvas, Spec
from kopitiam.results.charts.data import ChartData, best_rows, first_rows, series
from kopitiam.results.charts.distribution import Distribution, distribution
from kopitiam.results.charts.plan import Axis, ChartPlan, NotDrawable, plan_chart

MOST_LABELLED = 40  # answers of up to this many rows have a bar with its figure for each
MOST_BARS = 120
MOST_EACH = 10  # bars of one `x`, and series
MOST_COLUMNS = 400
MOST_STACKED_ROWS = 40
MOST_POINTS = 2_000
MOST_CELLS = (60, 40)  # columns and rows of a heat map


@dataclass(frozen=True)
class Drawing:
    """Input of the renderer, with the description and captions of the chart."""

    specification: Spec
    texts: tuple[str, ...]  # for `@0`, `@1`, … in the specification
    description: str
    caption: tuple[str, ...]
    drawn: int  # rows of the answer
    rows: int
    spread: Distribution | None = None  # of a histogram


@dataclass(frozen=True)
class NoChart:
    """The reason why an answer has no chart; empty if no chart suits its columns."""

    reason: str
    rows: int


def draw(answers: Answers, question: Question) -> Drawing | NoChart:
    """Draws the chart of one answer, or says why there is none."""
    rows = answers.rows(question.name)
    try:
        chart = plan_chart(question)
        if chart is None:
            return NoChart("", rows)
        if not rows:
            return NoChart("No rows.", 0)
        return _draw_planned(answers, chart)
    except NotDrawable as reason:
        return NoChart(f"The chart cannot be drawn: {reason}.", rows)


def _draw_planned(answers: Answers, chart: ChartPlan) -> Drawing | NoChart:
    if chart.mark == "histogram":
        return _histogram(answers, chart)
    canvas, data = _canvas(answers, chart)
    if canvas is None:
        return NoChart(f"Nothing to draw: {chart.figures.name} is empty in every row.", data.rows)
    canvas.caption = _left_out(chart, data, _most_each(answers, chart))
    return _finished(chart, canvas, data.drawn + data.lumped, data.rows)


def _finished(chart: ChartPlan, canvas: Canvas, drawn: int, rows: int) -> Drawing:
    title = f"{chart.question.title}. {_what(chart)}"
    caption = tuple(canvas.caption)
    specification = canvas.specification()
    return Drawing(specification, tuple(canvas.texts), " ".join([title, *caption]), caption, drawn, rows)


def _what(chart: ChartPlan) -> str:
    if chart.mark == "histogram":
        return f"How many rows have which {chart.x.name}."
    by = f", by {chart.color.name}" if chart.color and chart.mark != "rect" else ""
    if chart.mark == "rect":
        return f"{chart.figures.name} by {chart.x.name} and {chart.y.name}."
    return f"{chart.y.name} by {chart.x.name}{by}."


def _canvas(answers: Answers, chart: ChartPlan) -> tuple[Canvas | None, ChartData]:
    match chart.mark:
        case "bar":
            return _bars(answers, chart)
        case "point":
            data = first_rows(answers, chart, MOST_POINTS)
            return lines.points(chart, data) if data.has_figures else None, data
        case "rect":
            _require_apart(chart, chart.y)
            data = series(answers, chart, chart.y, *MOST_CELLS)
            is_drawn = data.has_figures
            return grids.heat_map(chart, data, chart.figures) if is_drawn else None, data
        case _:
            _require_apart(chart, chart.color)
            data = series(answers, chart, chart.color, MOST_POINTS, MOST_EACH)
            if not data.has_figures:
                return None, data
            build = lines.line if chart.mark == "line" else lines.area
            return build(chart, data, chart.color), data


def _bars(answers: Answers, chart: ChartPlan) -> tuple[Canvas | None, ChartData]:
    rows = answers.rows(chart.question.name)
    if rows <= MOST_LABELLED:
        data = first_rows(answers, chart, rows)
        build = bars.labelled_rows
    elif chart.is_one_row_each:
        most = MOST_COLUMNS if chart.x.is_ordered else MOST_BARS
        data = first_rows(answers, chart, most)
        build = bars.columns if chart.x.is_ordered else bars.labelled_rows
    elif chart.is_whole and chart.color is not None:
        most = MOST_COLUMNS if chart.x.is_ordered else MOST_STACKED_ROWS
        data = series(answers, chart, chart.color, most, MOST_EACH)
        return bars.stacked(chart, data, chart.color) if data.has_figures else None, data
    else:
        data = best_rows(answers, chart, MOST_BARS, _most_each(answers, chart))
        build = bars.labelled_rows
    return build(chart, data) if data.has_figures else None, data


def _most_each(answers: Answers, chart: ChartPlan) -> int:
    """The most bars of one `x`; a rank may have fewer places."""
    rank = chart.question.rank
    if rank is None or set(rank.within) != {chart.x.identity}:
        return MOST_EACH
    return min(MOST_EACH, answers.question_set.parameters.top if rank.top is None else rank.top)


def _require_apart(chart: ChartPlan, along: Axis | None) -> None:
    """Raises NotDrawable if several rows share a place and their figures do not add up."""
    keys = {key.name for key in chart.question.keys}
    axes = [chart.x] if along is None else [chart.x, along]
    is_apart = not chart.question.lists_rows and keys <= {axis.identity for axis in axes}
    if not is_apart and not chart.is_whole:
        shared = " and ".join(axis.name for axis in axes)
        raise NotDrawable(f"several rows share {shared}, and {chart.figures.name} does not add up")


def _left_out(chart: ChartPlan, data: ChartData, most_each: int) -> list[str]:
    sentences = []
    if data.lumped:
        sentences.append(f"{data.lumped:,} of {data.rows:,} rows are added up as others.")
    omitted = data.rows - data.drawn - data.lumped
    if omitted:
        sentences.append(
            f"The chart shows {data.rows - omitted:,} of {data.rows:,} rows{_which(chart, most_each)}."
        )
    empty = sum(item.figure is None for item in data.items)
    if empty:
        sentences.append(f"{empty:,} {'row has' if empty == 1 else 'rows have'} no {chart.figures.name}.")
    return sentences


def _which(chart: ChartPlan, most_each: int) -> str:
    if chart.mark == "point" or chart.is_one_row_each:
        return ": the first ones"
    if chart.mark == "rect":
        columns, lines = MOST_CELLS
        return f": of the first {columns} {chart.x.name} the {lines} {chart.y.name} with the highest peaks"
    is_stacked = chart.is_whole and chart.color is not None and chart.mark != "line"
    if is_stacked or most_each < MOST_EACH or (chart.mark != "bar" and chart.color is None):
        return f": those of the first {chart.x.name}"
    if chart.mark != "bar" and chart.color is not None:
        return f": the {MOST_EACH} {chart.color.name} with the highest peaks"
    by = "first by rank" if chart.is_ranked else f"largest by {chart.y.name}"
    return f": of each {chart.x.name} at most {MOST_EACH}, the {by}"


def _histogram(answers: Answers, chart: ChartPlan) -> Drawing | NoChart:
    spread = distribution(answers, chart.question.name, chart.x.name)
    rows = spread.count + spread.missing
    if not spread.bins:
        return NoChart(f"Nothing to draw: {chart.x.name} is empty in every row.", rows)
    canvas = grids.histogram(chart, spread)
    canvas.caption = [summary_text(chart.x, spread)]
    if spread.missing:
        canvas.caption.append(
            f"{spread.missing:,} of {rows:,} rows have no {chart.x.name}; they are not drawn."
        )
    return replace(_finished(chart, canvas, spread.count, rows), spread=spread)


def summary_text(axis: Axis, spread: Distribution) -> str:
    """`1,161 rows · sum RM 91,872.75 · median RM 78.00 · largest RM 108.50`."""
    figures = " · ".join(f"{word} {text}" for word, text in figures_of(axis, spread))
    return f"{spread.count:,} {'row' if spread.count == 1 else 'rows'} · {figures}"


def figures_of(axis: Axis, spread: Distribution) -> list[tuple[str, str]]:
    """Names and texts of sum, smallest, median and largest figure."""
    known = {
        "sum": spread.total,
        "smallest": spread.least,
        "median": spread.median,
        "largest": spread.largest,
    }

    def shown(text: str) -> str:
        if axis.kind is Kind.MONEY:
            return ringgit(text)
        return f"{int(text):,}" if axis.kind is Kind.COUNT else text

    return [(word, shown(text)) for word, text in known.items() if text is not None]
