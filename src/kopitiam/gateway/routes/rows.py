"""Answers and rejected rows page by page, for pages that show them in place."""

from typing import Annotated

from fastapi import APIRouter, Query

from kopitiam.contracts.api import AnswerPage, Number, RejectedPage, Text
from kopitiam.gateway.answers import are_provisional, latest_provisional, read_answers, rejected_lines
from kopitiam.gateway.context import GatewayDep, RunDep
from kopitiam.gateway.paging import answer_page, rejected_page
from kopitiam.gateway.problems import refusals
from kopitiam.gateway.routes.results import Attempt, QuestionDep
from kopitiam.landing.rejected import COLUMNS as REJECTED_COLUMNS
from kopitiam.results.forms import form_name
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[Number, Query(description="rows to leave out at the beginning")]


@router.get("/results/{answer}/rows", responses=refusals(409, 410))
def get_rows(
    run: RunDep,
    question: QuestionDep,
    gateway: GatewayDep,
    *,
    offset: Offset = 0,
    limit: Limit = 50,
    search: Annotated[Text, Query(description="a text in any cell, whatever the case")] = "",
    provisional: Annotated[bool, Query(description="of the latest provisional answers")] = False,
    attempt: Attempt = None,
) -> AnswerPage:
    """Rows of an answer, in its order, with all columns, as exact text."""

    def page(folder: Key) -> AnswerPage:
        with gateway.storage.open(folder / form_name(question, "parquet")) as file:
            found = answer_page(file, offset, limit, search)
        return AnswerPage(
            answer=question.name,
            columns=found.columns,
            rows=found.rows,
            offset=offset,
            matched=found.matched,
            total=found.total,
            provisional=are_provisional(run, folder),
        )

    return read_answers(gateway, run, page, latest_provisional if provisional else None, attempt)


@router.get("/rejected", responses=refusals(410))
def get_rejected_rows(
    run: RunDep, gateway: GatewayDep, offset: Offset = 0, limit: Limit = 50
) -> RejectedPage:
    """Rows that were set aside, by the client or here, with file, line and reason."""
    rows, more = rejected_page(rejected_lines(gateway, run), offset, limit)
    return RejectedPage(columns=list(REJECTED_COLUMNS), rows=rows, offset=offset, more=more)
