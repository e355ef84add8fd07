"""The report: all answers of a run on one page that needs nothing else, for the screen and for paper.

The same answers give the same bytes: nothing here looks at a clock. Spreadsheets open the page too, and run
cells, headings and words of charts as formulas: `_shown` and `_chart` keep them from it.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from kopitiam.contracts.tables import Rejected
from kopitiam.questions.definitions import AnswerColumn, Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, cell_text
from kopitiam.results.charts.colours import class_rules, variables
from kopitiam.results.charts.drawing import Drawing, draw, figures_of
from kopitiam.results.charts.plan import axis_of
from kopitiam.results.charts.rendering import Renderer, RenderingError, open_renderer
from kopitiam.results.descriptions import describe, parameters_used
from kopitiam.results.names import fitted, printable, without_formula
from kopitiam.results.summary import RunSummary

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


EXAMPLES = 20
_CELL_ROOM = 560  # pixels, about; the whole text shows when one points at it
_TALLEST = 1.2  # times as high as wide: what still can be read when a page of paper holds it all
_FOLDER = Path(__file__).parent
_TEXT = re.compile(r"(?<=>)[^<]+")  # of a picture; a ">" in a text is written as "&gt;"


@dataclass(frozen=True)
class Section:
    """One answer: what was asked, its picture, its rows."""

    question: Question
    about: str
    chart: Markup | None
    note: str  # why there is no chart
    is_tall: bool
    figures: list[tuple[str, str]]  # that stand for a long answer
    table: Cells
    rows: int

    @property
    def number(self) -> str:
        """`Q2.1` for questions of the catalog."""
        return f"Q{self.question.name.replace('_', '.')}" if self.question.is_builtin else ""

    @property
    def is_shape(self) -> bool:
        """Whether the table has the largest rows only."""
        return bool(self.figures)


def report(
    answers: Answers,
    summary: RunSummary,
    label: str = "",
    rejected: Sequence[Rejected] = (),
    renderer: Renderer | None = None,
) -> str:
    """`rejected` are examples; `label` is the name that the run was given.

    Without a `renderer` one is started for this report alone.
    """
    if renderer is None:
        with open_renderer() as own:
            return report(answers, summary, label, rejected, own)
    return _template().render(
        label=label,
        summary=summary,
        sections=list(_sections(answers, summary, renderer)),
        parameters=parameters_used(summary.question_set.questions, summary.question_set.parameters),
        rejected=rejected,
        style=Markup(_style()),  # noqa: S704 - ours
        policy=content_policy(),
        version=version("kopitiam"),
    )


def content_policy() -> str:
    """Nothing is loaded and nothing runs; only the page's own style sheet counts."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _sections(answers: Answers, summary: RunSummary, renderer: Renderer) -> Iterator[Section]:
    for question in summary.question_set.questions:
        drawing = draw(answers, question)
        chart, note, is_tall = (
            _chart(drawing, renderer) if isinstance(drawing, Drawing) else (None, "", False)
        )
        spread = drawing.spread if isinstance(drawing, Drawing) and question.lists_rows else None
        axis = axis_of(question, question.columns_by_name[spread.column]) if spread else None
        yield Section(
            question,
            describe(question, summary.question_set.parameters),
            chart,
            note if isinstance(drawing, Drawing) else drawing.reason,
            is_tall,
            figures_of(axis, spread) if spread and axis else [],
            plain_cells(question, spread.largest_rows) if spread else cells(answers, question),
            answers.rows(question.name),
        )


def _chart(drawing: Drawing, renderer: Renderer) -> tuple[Markup | None, str, bool]:
    """A report without a chart is better than no report."""
    size = drawing.specification
    is_tall = size["height"] > _TALLEST * size["width"]
    try:
        picture = _TEXT.sub(lambda text: without_formula(text[0]), renderer.svg(drawing))
        return Markup(picture), "", is_tall  # noqa: S704 - rebuilt from a closed list
    except RenderingError as error:
        return None, f"There is no chart: {error}.", False


def _shown(value: object) -> object:
    """What the template writes for a value. Markup is the page's own; other texts come from clients."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else without_formula(value)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,}".format,
        "whole": printable,
        "fitted": lambda text: fitted(text, _CELL_ROOM),
        "figure": escape,  # made here from a number: a spreadsheet may take it for one
    }
    return environment.get_template("report.html.jinja")


@cache
def _style() -> str:
    """With the colours of the charts, by day and by night; paper is always day."""
    sheet = (_FOLDER / "report.css").read_text(encoding="utf-8")
    rules = class_rules(".chart").replace("\n", " ")
    for mark, text in (("day", variables("light")), ("night", variables("dark")), ("classes", rules)):
        sheet = sheet.replace(f"/* {mark} */", text)
    return sheet
