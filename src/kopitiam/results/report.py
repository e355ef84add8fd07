"""The report: all answers of a run on one page that needs nothing else, for the screen and for paper.

The same answers give the same bytes: nothing here looks at a clock. Spreadsheets open the page too, and run
cells, headings and words of charts as formulas: `_shown` and `_chart` keep them from it.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from kopitiam.contracts.tables import Rejected
from kopitiam.questions.definitions import Question
from kopitiam.results.about import about, parameters_asked
from kopitiam.results.answers import Answers
from kopitiam.results.charts.colours import class_rules, variables
from kopitiam.results.charts.design import axis_of
from kopitiam.results.charts.drawing import Drawing, draw, figures_of
from kopitiam.results.charts.painter import Painter, Unpaintable, painting
from kopitiam.results.names import fitted, printable, without_formula
from kopitiam.results.report_tables import Cells, cells, plain_cells
from kopitiam.results.summary import Summary

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
    summary: Summary,
    label: str = "",
    rejected: Sequence[Rejected] = (),
    painter: Painter | None = None,
) -> str:
    """`rejected` are examples; `label` is the name that the run was given.

    Without a `painter` one is started for this report alone.
    """
    if painter is None:
        with painting() as own:
            return report(answers, summary, label, rejected, own)
    return _template().render(
        label=label,
        summary=summary,
        sections=list(_sections(answers, summary, painter)),
        parameters=parameters_asked(summary.asked.questions, summary.asked.parameters),
        rejected=rejected,
        style=Markup(_style()),  # noqa: S704 - ours
        policy=content_policy(),
        version=version("kopitiam"),
    )


def content_policy() -> str:
    """Nothing is loaded and nothing runs; only the page's own style sheet counts."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _sections(answers: Answers, summary: Summary, painter: Painter) -> Iterator[Section]:
    for question in summary.asked.questions:
        drawing = draw(answers, question)
        chart, note, is_tall = _chart(drawing, painter) if isinstance(drawing, Drawing) else (None, "", False)
        spread = drawing.spread if isinstance(drawing, Drawing) and question.lists_rows else None
        axis = axis_of(question, question.columns_by_name[spread.column]) if spread else None
        yield Section(
            question,
            about(question, summary.asked.parameters),
            chart,
            note if isinstance(drawing, Drawing) else drawing.reason,
            is_tall,
            figures_of(axis, spread) if spread and axis else [],
            plain_cells(question, spread.largest_rows) if spread else cells(answers, question),
            answers.rows(question.name),
        )


def _chart(drawing: Drawing, painter: Painter) -> tuple[Markup | None, str, bool]:
    """A report without a chart is better than no report."""
    size = drawing.specification
    is_tall = size["height"] > _TALLEST * size["width"]
    try:
        picture = _TEXT.sub(lambda text: without_formula(text[0]), painter.picture(drawing))
        return Markup(picture), "", is_tall  # noqa: S704 - rebuilt from a closed list
    except Unpaintable as error:
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
