"""The report: all answers of a run on one self-contained HTML page, for the screen and for paper.

The same answers give the same bytes. Spreadsheets open the page too, and would run cells, headings and texts
of charts as formulas: `_shown` and `_chart` prevent that. Tables have exact text and at most MOST_ROWS rows.
An answer of two keys, one of them a period, has a column for each period, as long as there are few periods.
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
from kopitiam.results.changes import ChangesSince
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
EXAMPLES = 20
_CELL_ROOM = 560  # pixels, about; the whole text is shown on hover
_TALLEST = 1.2  # height by width up to which a chart is legible on one printed page
_FOLDER = Path(__file__).parent
_TEXT = re.compile(r"(?<=>)[^<]+")  # of an SVG; a ">" in a text is written as "&gt;"


class Cell(NamedTuple):
    text: str
    note: str = ""


@dataclass(frozen=True)
class ReportTable:
    """The table of one answer on the page."""

    columns: list[str]
    rows: list[list[Cell]]
    numbers: Set[int] = field(default_factory=frozenset)  # places of the columns with figures
    left_out: int = 0


@dataclass(frozen=True)
class Pivot:
    """Columns of a pivot: a line for each of `lines`, named by `label`; a column for each `period`."""

    lines: str
    label: str
    period: str
    figure: str


def table_columns(question: Question) -> list[AnswerColumn]:
    """The columns to show: all except `…_is_matched`, and ids whose name is shown."""
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
    """How the table may be pivoted, judging by keys and measures; None if it may not."""
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


def answer_table(answers: Answers, question: Question) -> ReportTable:
    """The first rows of the answer, pivoted if there are few periods."""
    rows, left_out = _first(answers, question.name)
    pivot = pivot_of(question)
    if pivot is not None and not left_out:
        periods = sorted({row[pivot.period] for row in rows}, key=lambda period: (period is not None, period))
        if 1 < len(periods) <= MOST_PERIODS:
            return _pivoted(question, pivot, periods, rows)
    return plain_table(question, rows, left_out)


def plain_table(question: Question, rows: Sequence[dict[str, Any]], left_out: int = 0) -> ReportTable:
    """Rows as they are, with the columns of `table_columns`."""
    columns = table_columns(question)
    numbers = {place for place, column in enumerate(columns) if column.kind in FIGURES}
    lines = [[_cell(question, column, row) for column in columns] for row in rows]
    return ReportTable([column.name for column in columns], lines, numbers, left_out)


def _pivoted(
    question: Question, pivot: Pivot, periods: Sequence[Any], rows: Sequence[dict[str, Any]]
) -> ReportTable:
    by_name = question.columns_by_name
    figure, label = by_name[pivot.figure], by_name[pivot.label]
    lines: dict[Any, dict[Any, Cell]] = {}
    names: dict[Any, Cell] = {}
    for row in rows:
        names[row[pivot.lines]] = _cell(question, label, row)
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
    return ReportTable([pivot.label, *heads], shown, set(range(1, len(heads) + 1)))


def _first(answers: Answers, name: str) -> tuple[list[dict[str, Any]], int]:
    rows = list(islice(_rows(answers, name), MOST_ROWS))
    return rows, answers.rows(name) - len(rows)


def _rows(answers: Answers, name: str) -> Iterator[dict[str, Any]]:
    for batch in answers.batches(name):
        yield from batch.slice(0, MOST_ROWS).to_pylist()


def _cell(question: Question, column: AnswerColumn, row: dict[str, Any]) -> Cell:
    """The cell of a row; a name that is missing from its table has a note."""
    text = cell_text(column, row[column.name])
    if column.attribute is None or LAYOUT[column.attribute.table].label != column.attribute.name:
        return Cell(text)
    matched = matched_name(question.identity(column.attribute))
    return Cell(text, UNMATCHED if row[matched] is False else "")


@dataclass(frozen=True)
class ReportChanges:
    """How an answer differs from an earlier one."""

    since: str
    text: str
    table: ReportTable


@dataclass(frozen=True)
class Section:
    """One answer on the page: description, chart and table."""

    question: Question
    about: str
    chart: Markup | None
    note: str  # why there is no chart
    is_tall: bool
    figures: list[tuple[str, str]]  # sum, median and others of a list of rows
    table: ReportTable
    rows: int
    changes: ReportChanges | None = None

    @property
    def number(self) -> str:
        """`Q2.1` for questions of the catalog, else empty."""
        return self.question.short_name if self.question.is_builtin else ""

    @property
    def is_shape(self) -> bool:
        """Whether the table has only the largest rows, below figures of all rows."""
        return bool(self.figures)


def report(
    answers: Answers,
    summary: RunSummary,
    label: str = "",
    rejected: Sequence[Rejected] = (),
    renderer: Renderer | None = None,
    *,
    changes: ChangesSince | None = None,
) -> str:
    """The page as HTML, with `rejected` as examples, the label of the run, and how its answers changed.

    Without a `renderer` one is started for this report alone.
    """
    if renderer is None:
        with open_renderer() as own:
            return report(answers, summary, label, rejected, own, changes=changes)
    return _template().render(
        label=label,
        summary=summary,
        sections=list(_sections(answers, summary, renderer, changes)),
        parameters=parameters_used(summary.question_set.questions, summary.question_set.parameters),
        rejected=rejected,
        style=Markup(_style()),  # noqa: S704 - ours
        policy=content_policy(),
        version=version("kopitiam"),
    )


def content_policy() -> str:
    """The Content-Security-Policy of the page: its own style sheet, nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _sections(
    answers: Answers, summary: RunSummary, renderer: Renderer, changes: ChangesSince | None
) -> Iterator[Section]:
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
            plain_table(question, spread.largest_rows) if spread else answer_table(answers, question),
            answers.rows(question.name),
            _report_changes(changes, question) if changes else None,
        )


def _report_changes(changes: ChangesSince, question: Question) -> ReportChanges | None:
    if (of_question := changes.by_question.get(question.name)) is None:
        return None
    rows = [[Cell(text) for text in row] for row in of_question.cells()]
    table = ReportTable(of_question.titles, rows, of_question.figure_places, of_question.left_out)
    return ReportChanges(changes.since, of_question.text, table)


def _chart(drawing: Drawing, renderer: Renderer) -> tuple[Markup | None, str, bool]:
    """The chart, why there is none, and whether it is tall. A failed chart does not fail the report."""
    size = drawing.specification
    is_tall = size["height"] > _TALLEST * size["width"]
    try:
        svg = _TEXT.sub(lambda text: without_formula(text[0]), renderer.svg(drawing))
        return Markup(svg), "", is_tall  # noqa: S704 - rebuilt from a closed list
    except RenderingError as error:
        return None, f"There is no chart: {error}.", False


def _shown(value: object) -> object:
    """A value as the template writes it: texts of clients never start a formula."""
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
        "figure": escape,  # made from a number, which a spreadsheet may read as such
    }
    return environment.get_template("report.html.jinja")


@cache
def _style() -> str:
    """The style sheet with the colours of charts in both themes; paper is light."""
    sheet = (_FOLDER / "report.css").read_text(encoding="utf-8")
    rules = class_rules(".chart").replace("\n", " ")
    for marker, text in (("day", variables("light")), ("night", variables("dark")), ("classes", rules)):
        sheet = sheet.replace(f"/* {marker} */", text)
    return sheet
