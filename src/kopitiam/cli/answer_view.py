"""One answer in a terminal, arranged by the kinds and roles of its columns.

Figures have bars, below the names that they belong to; a histogram shows the shape of many rows; rows without
figures stand in columns. Nothing here knows a question by its name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kopitiam.cli.bars import Figure, barred, name_text, printable, show_barred
from kopitiam.cli.columns import in_columns
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import RANK, AnswerColumn, Question
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, cell_text
from kopitiam.results.charts.design import Axis, NotDrawable, axis_of, design
from kopitiam.results.charts.distribution import distribution, units_text
from kopitiam.results.text import shorten

MOST_LINES = 120  # of an answer with figures
MOST_LISTED = 10  # of an answer without
_MAX_NAME = 60  # characters; a longer name would push the figures off the line

Row = dict[str, Any]


def title_of(question: Question) -> str:
    name = f"Q{question.name.replace('_', '.')}" if question.is_builtin else question.name
    return f"{name}  {question.title}"


def show_answer(console: Console, answers: Answers, question: Question) -> None:
    """What one would look at; the rest is in the files, and how much that is, is said."""
    if not answers.rows(question.name):
        console.print("  no rows", style="dim")
    elif (column := _spread_column(question)) is not None:
        _show_distribution(console, answers, question, column)
    elif (layout := layout_of(question)) is not None:
        _show_figures(console, answers, question, layout)
    else:
        _show_listed(console, answers, question)


def say(console: Console, line: str, indent: int = 2, style: str = "") -> None:
    """Folded between words on a terminal; a pipe gets whole lines."""
    if console.is_terminal:
        console.print(Padding(Text(line, style, overflow="fold"), (0, 0, 0, indent), expand=False))
    else:
        console.print(Text(" " * indent + line, style), soft_wrap=True)


# -- figures with bars


@dataclass(frozen=True)
class Layout:
    """`heading` are the columns that rows stand below; the first of `figures` has the bar."""

    heading: tuple[Axis, ...]
    labels: tuple[Axis, ...]
    figures: tuple[AnswerColumn, ...]


def layout_of(question: Question) -> Layout | None:
    """None if nothing is measured that a bar could show."""
    figures = _figures(question)
    if not figures:
        return None
    columns = [question.columns_by_name[name] for name in question.shown if name != RANK]
    labels = [axis_of(question, column) for column in columns if column.role in ("key", "attribute")]
    heading = _heading(question, labels)
    beside = tuple(label for label in labels if label not in heading)
    return Layout(heading, beside, figures) if beside else Layout((), tuple(labels), figures)


def _figures(question: Question) -> tuple[AnswerColumn, ...]:
    """The measure that is drawn or ranked by comes first, then the others that are shown."""
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
    """What rows are ranked within; else names, if times stand below them; else the first of several columns.

    Where every group has one row, a heading would say no more than a label.
    """
    if (rank := question.rank) is not None:
        return () if rank.top == 1 else tuple(label for label in labels if label.identity in rank.within)
    names = tuple(label for label in labels if not label.is_time)
    if names and len(names) < len(labels):
        return names
    return tuple(label for label in labels if label.identity == labels[0].identity) if labels else ()


def _show_figures(console: Console, answers: Answers, question: Question, layout: Layout) -> None:
    """Bars of all groups are to the same scale."""
    rows = _first_rows(console, answers, question, MOST_LINES)
    rows.sort(key=lambda row: (_group(layout, row), row.get(RANK) or 0))
    figures = [_figure(layout, row) for row in rows]
    most = max(figure.size for figure in figures)
    titles = tuple(column.name for column in layout.figures)
    head = Figure(tuple(label.name for label in layout.labels), titles[0], 0.0, titles[1:])
    everything = [*figures, *([head] if len(titles) > 1 else [])]
    indent = 4 if layout.heading else 2
    if len(titles) > 1:
        for line in barred(console, [head], indent, everything, most):
            line.stylize("dim")
            console.print(line, soft_wrap=True)
    pairs = list(zip(rows, figures, strict=True))
    for _, group in groupby(pairs, key=lambda pair: _group(layout, pair[0])):
        members = list(group)
        if layout.heading:
            names = (name_text(_text(axis.column, members[0][0])) for axis in layout.heading)
            say(console, " · ".join(names))
        show_barred(console, [figure for _, figure in members], indent, everything, most)


def _group(layout: Layout, row: Row) -> tuple[Any, ...]:
    """Two stores may share a name: their ids keep them apart."""
    names = [axis.name for axis in layout.heading] + [axis.identity for axis in layout.heading]
    return tuple((row[name] is not None, row[name]) if row[name] is not None else (False,) for name in names)


def _figure(layout: Layout, row: Row) -> Figure:
    first, *others = (cell_text(column, row[column.name]) for column in layout.figures)
    size = row[layout.figures[0].name]
    names = tuple(_text(label.column, row) for label in layout.labels)
    return Figure(names, first, float(size) if size is not None else 0.0, tuple(map(printable, others)))


def _text(column: AnswerColumn, row: Row) -> str:
    return shorten(cell_text(column, row[column.name]), _MAX_NAME)


# -- the shape of many rows


def _spread_column(question: Question) -> str | None:
    try:
        drawn = design(question)
    except NotDrawable:
        return None
    return drawn.x.name if drawn is not None and drawn.mark == "histogram" else None


def _show_distribution(console: Console, answers: Answers, question: Question, column: str) -> None:
    spread = distribution(answers, question.name, column)
    measured = AnswerColumn(column, spread.kind, "measure")

    def shown(text: str) -> str:
        return cell_text(measured, Decimal(text))

    figures = [
        Figure((f"from {shown(units_text(spread.kind, each.first))}",), f"{each.count:,}", each.count)
        for each in spread.bins
    ]
    show_barred(console, figures)
    facts = {"sum": spread.total, "median": spread.median, "largest": spread.largest}
    if spread.kind is Kind.NUMBER:
        del facts["sum"]  # of ratios it would mean nothing
    told = [f"{name} {shown(text)}" for name, text in facts.items() if text is not None and spread.count]
    told += [f"{spread.missing:,} without a figure"] if spread.missing else []
    say(console, " · ".join((f"{spread.count:,} in all", *told)))


# -- rows in columns


def _show_listed(console: Console, answers: Answers, question: Question) -> None:
    columns = [question.columns_by_name[name] for name in question.shown]
    rows = _first_rows(console, answers, question, MOST_LISTED)
    cells = [[_text(column, row) for column in columns] for row in rows]
    figures = {place for place, column in enumerate(columns) if column.kind in FIGURES}
    for line in in_columns(console, question.shown, cells, figures, indent=2):
        console.print(line, soft_wrap=True)


def _first_rows(console: Console, answers: Answers, question: Question, most: int) -> list[Row]:
    count = answers.rows(question.name)
    if count > most:
        say(console, f"the first {most:,} of {count:,}")
    return list(first_rows(answers, question.name, most))


def first_rows(answers: Answers, name: str, most: int) -> Iterator[Row]:
    rows = (row for batch in answers.batches(name) for row in batch.slice(0, most).to_pylist())
    return islice(rows, most)
