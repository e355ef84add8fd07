"""The rows of an answer as a page shows them: exact text, never more rows than a page can bear.

An answer of two keys, one of them a period, is shown with a line for each value of the other key and a column
for each period, as long as there are few periods.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from kopitiam.questions.definitions import AnswerColumn, Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, cell_text
from kopitiam.results.charts.design import axis_of

MOST_ROWS = 500
MOST_PERIODS = 12
UNMATCHED = "not in its table"
MISSING = "–"


class Cell(NamedTuple):
    text: str
    note: str = ""  # what is said about it


@dataclass(frozen=True)
class Cells:
    columns: list[str]
    rows: list[list[Cell]]
    numbers: Set[int] = field(default_factory=frozenset)  # the columns that hold figures
    left_out: int = 0


@dataclass(frozen=True)
class Pivot:
    """Columns of the answer: a line for each of `lines`, named by `label`, a column for each `period`."""

    lines: str
    label: str
    period: str
    figure: str


def table_columns(question: Question) -> list[AnswerColumn]:
    """What people look at: all but the marks of matching, and the ids that a shown name stands for."""
    named = {
        question.identity(attribute)
        for attribute in question.attributes
        if LAYOUT[attribute.table].label == attribute.name
    }
    return [
        column
        for column in question.answer_columns
        if column.role != "matched" and (column.name not in named or column.name in question.shown)
    ]


def pivot_of(question: Question) -> Pivot | None:
    """How the answer may be turned, by its keys and measures alone."""
    figures = [column for column in question.answer_columns if column.role == "measure"]
    if question.rank is not None or len(question.keys) != 2 or len(figures) != 1:
        return None
    axes = [axis_of(question, question.columns_by_name[key.name]) for key in question.keys]
    periods = [axis for axis in axes if axis.is_time]
    others = [axis for axis in axes if not axis.is_time]
    if len(periods) != 1 or figures[0].kind not in FIGURES:
        return None
    labels = [a.name for a in question.attributes if question.identity(a) == others[0].name]
    if len(labels) > 1:
        return None
    return Pivot(others[0].name, labels[0] if labels else others[0].name, periods[0].name, figures[0].name)


def cells(answers: Answers, question: Question) -> Cells:
    """The first rows of the answer, turned where that reads better."""
    read, left_out = _first(answers, question.name)
    pivot = pivot_of(question)
    if pivot is not None and not left_out:
        periods = sorted({row[pivot.period] for row in read}, key=lambda each: (each is not None, each))
        if 1 < len(periods) <= MOST_PERIODS:
            return _turned(question, pivot, periods, read)
    return plain_cells(question, read, left_out)


def plain_cells(question: Question, rows: Sequence[dict[str, Any]], left_out: int = 0) -> Cells:
    columns = table_columns(question)
    numbers = {place for place, column in enumerate(columns) if column.kind in FIGURES}
    lines = [[_named(question, column, row) for column in columns] for row in rows]
    return Cells([column.name for column in columns], lines, numbers, left_out)


def _turned(
    question: Question, pivot: Pivot, periods: Sequence[Any], rows: Sequence[dict[str, Any]]
) -> Cells:
    by_name = question.columns_by_name
    figure, label = by_name[pivot.figure], by_name[pivot.label]
    lines: dict[Any, dict[Any, Cell]] = {}
    names: dict[Any, Cell] = {}
    for row in rows:
        names[row[pivot.lines]] = _named(question, label, row)
        figures = lines.setdefault(row[pivot.lines], {})
        figures[row[pivot.period]] = Cell(cell_text(figure, row[pivot.figure]))
    shared = Counter(name.text for name in names.values())
    for line, name in names.items():
        if shared[name.text] > 1:
            names[line] = name._replace(note=f"{pivot.lines} {line}")
    shown = [
        [names[line], *(lines[line].get(period, Cell(MISSING)) for period in periods)]
        for line in sorted(lines, key=lambda line: (names[line].text, str(line)))
    ]
    heads = [cell_text(by_name[pivot.period], period) for period in periods]
    return Cells([pivot.label, *heads], shown, set(range(1, len(heads) + 1)))


def _first(answers: Answers, name: str) -> tuple[list[dict[str, Any]], int]:
    read = list(islice(_rows(answers, name), MOST_ROWS))
    return read, answers.rows(name) - len(read)


def _rows(answers: Answers, name: str) -> Iterator[dict[str, Any]]:
    for batch in answers.batches(name):
        yield from batch.slice(0, MOST_ROWS).to_pylist()


def _named(question: Question, column: AnswerColumn, row: dict[str, Any]) -> Cell:
    """A name that its table lacks is said to be so."""
    text = cell_text(column, row[column.name])
    if column.attribute is None or LAYOUT[column.attribute.table].label != column.attribute.name:
        return Cell(text)
    matched = matched_name(question.identity(column.attribute))
    return Cell(text, UNMATCHED if row[matched] is False else "")
