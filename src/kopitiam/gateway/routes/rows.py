"""Answers and rejected rows for whoever looks at them in place: as charts, and page by page."""

from typing import Annotated

from fastapi import APIRouter, Query

from kopitiam.contracts.api import AnswerPage, Charts, Number, RejectedPage, Text
from kopitiam.contracts.questions import ANSWERS
from kopitiam.gateway.answers import (
    answer_files,
    are_provisional,
    fresh_provisional,
    latest_provisional,
    read_answers,
    rejected_lines,
    summary_now,
)
from kopitiam.gateway.context import GatewayDep, RunDep
from kopitiam.gateway.paging import answer_page, rejected_page
from kopitiam.gateway.problems import refusals
from kopitiam.gateway.routes.results import AnswerName, Provisional
from kopitiam.landing.quarantine import COLUMNS as REJECTED_COLUMNS
from kopitiam.results.charts import CHARTS, chart_rows
from kopitiam.results.forms import form_name
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[Number, Query(description="rows to leave out at the beginning")]


@router.get("/results/charts", responses=refusals(409, 410))
def get_charts(run: RunDep, gateway: GatewayDep, provisional: Provisional = False) -> Charts:
    """What the charts of all answers are drawn from, all of one moment."""

    def charts(folder: Key) -> Charts:
        answers = answer_files(gateway, run, folder)
        drawn = {name: chart_rows(name, answers) for name in CHARTS}
        summary = summary_now(gateway, run, folder)
        return Charts(charts=drawn, summary=summary, provisional=are_provisional(run, folder))

    return read_answers(gateway, run, charts, fresh_provisional if provisional else None)


@router.get("/results/{answer}/rows", responses=refusals(409, 410))
def get_rows(
    run: RunDep,
    answer: AnswerName,
    gateway: GatewayDep,
    *,
    offset: Offset = 0,
    limit: Limit = 50,
    search: Annotated[Text, Query(description="a text in any cell, whatever the case")] = "",
    provisional: Annotated[bool, Query(description="of the latest provisional answers")] = False,
) -> AnswerPage:
    """Rows of an answer, in its order, with all columns, as exact text."""

    def page(folder: Key) -> AnswerPage:
        with gateway.storage.open(folder / form_name(ANSWERS[answer], "parquet")) as file:
            found = answer_page(file, offset, limit, search)
        return AnswerPage(
            answer=answer,
            columns=found.columns,
            rows=found.rows,
            offset=offset,
            matched=found.matched,
            total=found.total,
            provisional=are_provisional(run, folder),
        )

    return read_answers(gateway, run, page, latest_provisional if provisional else None)


@router.get("/rejected", responses=refusals(410))
def get_rejected_rows(
    run: RunDep, gateway: GatewayDep, offset: Offset = 0, limit: Limit = 50
) -> RejectedPage:
    """Rows that were set aside, by the client or here, with file, line and reason."""
    rows, more = rejected_page(rejected_lines(gateway, run), offset, limit)
    return RejectedPage(columns=list(REJECTED_COLUMNS), rows=rows, offset=offset, more=more)
