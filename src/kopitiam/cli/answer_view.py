"""Shows one answer in a terminal, laid out by the kinds and roles of its columns.

Figures get bars, grouped under headings; an answer with many rows gets a histogram; rows without figures are
listed in columns. No code here depends on the name of a question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kopitiam.cli.columns import BarRow, bar_lines, column_lines, name_text, print_bars, printable
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import RANK, AnswerColumn, Question
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, cell_text, shorten
from kopitiam.results.charts.distribution import distribution, units_text
from kopitiam.results.charts.plan import Axis, NotDrawable, axis_of, plan_chart

MOST_LINES = 120  # of an answer with figures
MOST_LISTED = 10  # rows of an answer without figures
_MAX_NAME = 60  # characters; a longer name would push the figures off the line

Row = dict[str, Any]


def title_of(question: Question) -> str:
    name = question.short_name
    return f"{name}  {question.title}"


def show_answer(console: Console, answers: Answers, question: Question) -> None:
    """Print the first rows of an answer, and how many there are if not all are shown."""
    if not answers.rows(question.name):
        console.print("  no rows", style="dim")
    elif (column := _spread_column(question)) is not None:
        _show_distribution(console, answers, question, column)
    elif (layout := layout_of(question)) is not None:
        _show_figures(console, answers, question, layout)
    else:
        _show_listed(console, answers, question)


def print_text(console: Console, line: str, indent: int = 2, style: str = "") -> None:
    """Print a line: wrapped between words on a terminal, unwrapped to a pipe."""
    if console.is_terminal:
        console.print(Padding(Text(line, style, overflow="fold"), (0, 0, 0, indent), expand=False))
    else:
        console.print(Text(" " * indent + line, style), soft_wrap=True)


# -- figures with bars


@dataclass(frozen=True)
class Layout:
    """Rows are grouped under the columns `heading`; the first of `figures` has the bar."""

    heading: tuple[Axis, ...]
    labels: tuple[Axis, ...]
    figures: tuple[AnswerColumn, ...]


def layout_of(question: Question) -> Layout | None:
    """Return the layout of an answer with bars, None if it has no figure to draw."""
    figures = _figures(question)
    if not figures:
        return None
    columns = [question.columns_by_name[name] for name in question.shown if name != RANK]
    labels = [axis_of(question, column) for column in columns if column.role in ("key", "attribute")]
    heading = _heading(question, labels)
    beside = tuple(label for label in labels if label not in heading)
    return Layout(heading, beside, figures) if beside else Layout((), tuple(labels), figures)


def _figures(question: Question) -> tuple[AnswerColumn, ...]:
    """Return the measure of the chart or the rank, then the other measures that are shown."""
    columns = question.columns_by_name
    names = [question.chart.y if question.chart else "", question.rank.by if question.rank else ""]
    names += [*question.shown, *(measure.name for measure in question.measures)]
    measures = [columns[name] for name in names if name in columns and columns[name].role == "measure"]
    first = next((column for column in measures if column.kind in FIGURES), None)
    if first is None:
        return ()
    others = [column for column in measures if column.name in question.shown and column != first]
    return tuple(dict.fromkeys([first, *others]))


def _heading(question: Question, labels: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the columns to group by: those of the rank, else names above times, else the first column.

    Without a heading if every group has one row.
    """
    if (rank := question.rank) is not None:
        return () if rank.top == 1 else tuple(label for label in labels if label.identity in rank.within)
    names = tuple(label for label in labels if not label.is_time)
    if names and len(names) < len(labels):
        return names
    return tuple(label for label in labels if label.identity == labels[0].identity) if labels else ()


def _show_figures(console: Console, answers: Answers, question: Question, layout: Layout) -> None:
    """Print rows with bars, group by group, all on the same scale."""
    rows = _first_rows(console, answers, question, MOST_LINES)
    rows.sort(key=lambda row: (_group(layout, row), row.get(RANK) or 0))
    figures = [_figure(layout, row) for row in rows]
    most = max(figure.size for figure in figures)
    titles = tuple(column.name for column in layout.figures)
    head = BarRow(tuple(label.name for label in layout.labels), titles[0], 0.0, titles[1:])
    everything = [*figures, *([head] if len(titles) > 1 else [])]
    indent = 4 if layout.heading else 2
    if len(titles) > 1:
        for line in bar_lines(console, [head], indent, everything, most):
            line.stylize("dim")
            console.print(line, soft_wrap=True)
    pairs = list(zip(rows, figures, strict=True))
    for _, group in groupby(pairs, key=lambda pair: _group(layout, pair[0])):
        members = list(group)
        if layout.heading:
            names = (name_text(_text(axis.column, members[0][0])) for axis in layout.heading)
            print_text(console, " · ".join(names))
        print_bars(console, [figure for _, figure in members], indent, everything, most)


def _group(layout: Layout, row: Row) -> tuple[Any, ...]:
    """Return the sort key of a row's group: names, and ids, because two stores may have the same name."""
    names = [axis.name for axis in layout.heading] + [axis.identity for axis in layout.heading]
    return tuple((row[name] is not None, row[name]) if row[name] is not None else (False,) for name in names)


def _figure(layout: Layout, row: Row) -> BarRow:
    first, *others = (cell_text(column, row[column.name]) for column in layout.figures)
    size = row[layout.figures[0].name]
    names = tuple(_text(label.column, row) for label in layout.labels)
    return BarRow(names, first, float(size) if size is not None else 0.0, tuple(map(printable, others)))


def _text(column: AnswerColumn, row: Row) -> str:
    return shorten(cell_text(column, row[column.name]), _MAX_NAME)


# -- histograms


def _spread_column(question: Question) -> str | None:
    try:
        drawn = plan_chart(question)
    except NotDrawable:
        return None
    return drawn.x.name if drawn is not None and drawn.mark == "histogram" else None


def _show_distribution(console: Console, answers: Answers, question: Question, column: str) -> None:
    spread = distribution(answers, question.name, column)
    measured = AnswerColumn(column, spread.kind, "measure")

    def shown(text: str) -> str:
        return cell_text(measured, Decimal(text))

    figures = [
        BarRow((f"from {shown(units_text(spread.kind, bin_.first))}",), f"{bin_.count:,}", bin_.count)
        for bin_ in spread.bins
    ]
    print_bars(console, figures)
    facts = {"sum": spread.total, "median": spread.median, "largest": spread.largest}
    if spread.kind is Kind.NUMBER:
        del facts["sum"]  # a sum of ratios has no meaning
    parts = [f"{name} {shown(text)}" for name, text in facts.items() if text is not None and spread.count]
    parts += [f"{spread.missing:,} without a figure"] if spread.missing else []
    print_text(console, " · ".join((f"{spread.count:,} in all", *parts)))


# -- rows in columns


def _show_listed(console: Console, answers: Answers, question: Question) -> None:
    columns = [question.columns_by_name[name] for name in question.shown]
    rows = _first_rows(console, answers, question, MOST_LISTED)
    cells = [[_text(column, row) for column in columns] for row in rows]
    figures = {place for place, column in enumerate(columns) if column.kind in FIGURES}
    for line in column_lines(console, question.shown, cells, figures, indent=2):
        console.print(line, soft_wrap=True)


def _first_rows(console: Console, answers: Answers, question: Question, most: int) -> list[Row]:
    count = answers.rows(question.name)
    if count > most:
        print_text(console, f"the first {most:,} of {count:,}")
    return list(first_rows(answers, question.name, most))


def first_rows(answers: Answers, name: str, most: int) -> Iterator[Row]:
    rows = (row for batch in answers.batches(name) for row in batch.slice(0, most).to_pylist())
    return islice(rows, most)
