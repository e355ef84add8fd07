"""One entry of the index of answers: what a page needs to show an answer that it knows nothing about."""

from dataclasses import asdict

from kopitiam.contracts.api import AnswerView, ChartView, IndexColumn, PivotView
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.definitions import AnswerColumn, Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.results.about import about
from kopitiam.results.answers import Answers
from kopitiam.results.charts.drawing import Drawing, Undrawn
from kopitiam.results.report_tables import MOST_PERIODS, pivot_of, table_columns


def answer_view(question: Question, answers: Answers, drawing: Drawing | Undrawn) -> AnswerView:
    parameters: Parameters = answers.asked.parameters
    pivot = pivot_of(question)
    listed = {column.name for column in table_columns(question)}
    chart = None
    if isinstance(drawing, Drawing):
        chart = ChartView(
            description=drawing.description,
            caption=list(drawing.caption),
            drawn=drawing.drawn,
            rows=drawing.rows,
        )
    return AnswerView(
        name=question.name,
        title=question.title,
        about=about(question, parameters),
        file=question.file_stem,
        rows=drawing.rows,
        columns=[_column(question, column, listed) for column in question.answer_columns],
        chart=chart,
        note=drawing.reason if isinstance(drawing, Undrawn) else "",
        pivot=PivotView(**asdict(pivot), most_periods=MOST_PERIODS) if pivot else None,
    )


def _column(question: Question, column: AnswerColumn, listed: set[str]) -> IndexColumn:
    matched = None
    attribute = column.attribute
    if attribute is not None and LAYOUT[attribute.table].label == attribute.name:
        matched = matched_name(question.identity(attribute))
    return IndexColumn(
        name=column.name,
        kind=column.kind.value,
        role=column.role,
        shown=column.name in question.shown,
        listed=column.name in listed,
        matched=matched,
    )
