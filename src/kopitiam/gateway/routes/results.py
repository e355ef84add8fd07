"""Answers, in their three forms and as a report, and the rows that were set aside."""

import io
import itertools
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse

from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.runs import Run
from kopitiam.gateway.answers import (
    answer_files,
    fresh_provisional,
    read_answers,
    rejected_lines,
)
from kopitiam.gateway.context import Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.landing.layout import KEYS
from kopitiam.results.forms import SUMMARY_FILE, form_name
from kopitiam.results.reading import read_rejected, read_summary
from kopitiam.results.report import EXAMPLES, content_policy, report
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
_REFUSALS = refusals(409, 410)
_PIECE_BYTES = 1 << 20
_PAGE_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_MEDIA_TYPES = {"csv": CSV, "json": "application/json", "parquet": PARQUET}

AnswerName = Literal["1", "2_1", "2_2", "3", "4"]
Form = Literal["csv", "json", "parquet"]
Provisional = Annotated[bool, Query(description="Before the run is done: answers to what has come so far.")]


@router.get("/results/summary.json", response_class=FileResponse, responses=_REFUSALS)
def get_summary(run: RunDep, gateway: GatewayDep, provisional: Provisional = False) -> Response:
    """The account of the run: rows read, used and rejected, what was asked, what did not match."""
    return _file(gateway, run, SUMMARY_FILE, "json", provisional)


@router.get(
    "/results/report.html",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}}, **_REFUSALS},
)
def get_report(run: RunDep, gateway: GatewayDep, provisional: Provisional = False) -> Response:
    """The report: all answers, charts and the account of rows on one page that loads nothing else."""

    def page_of(folder: Key) -> str:
        with gateway.storage.open(folder / SUMMARY_FILE) as file:
            summary = read_summary(file.read())
        rejected = read_rejected(rejected_lines(gateway, run), EXAMPLES)
        return report(answer_files(gateway, folder), summary, run.label, rejected)

    page = read_answers(gateway, run, page_of, fresh_provisional if provisional else None)
    return HTMLResponse(page, headers={"Content-Security-Policy": content_policy(), **_PAGE_HEADERS})


@router.get("/results/{answer}.{form}", response_class=FileResponse, responses=_REFUSALS)
def get_answer(
    run: RunDep, answer: AnswerName, form: Form, gateway: GatewayDep, provisional: Provisional = False
) -> Response:
    """One answer: 1, 2_1, 2_2, 3 or 4, as csv, json or parquet.

    A provisional answer says in its JSON how many rows it covers of those that have come.
    """
    return _file(gateway, run, form_name(ANSWERS[answer], form), form, provisional)


@router.get("/rejected.csv", response_class=Response, responses={200: {"content": {CSV: {}}}, **_REFUSALS})
def get_rejected(run: RunDep, gateway: GatewayDep) -> Response:
    """All rows that were set aside, by the client or here, with file, line and reason."""
    files = gateway.storage.find(f"{KEYS.rejected(run.run)}/*.csv")
    if not files:
        raise Refusal(404, "not_found", "no row was set aside")

    def lines() -> Iterator[bytes]:
        for position, file in enumerate(files):
            with io.BufferedReader(gateway.storage.open(file)) as content:
                yield from itertools.islice(content, 1 if position else 0, None)

    return StreamingResponse(lines(), media_type=CSV)


def _file(gateway: Gateway, run: Run, name: str, form: str, provisional: bool) -> Response:
    if provisional:
        return read_answers(gateway, run, lambda it: _opened(gateway, it / name, form), fresh_provisional)
    return read_answers(gateway, run, lambda it: _as_it_lies(gateway, it / name, form))


def _as_it_lies(gateway: Gateway, key: Key, form: str) -> Response:
    if not gateway.storage.find(str(key)):
        raise FileNotFoundError(key)
    if (path := gateway.storage.path(key)) is not None:
        return FileResponse(path, media_type=_MEDIA_TYPES[form], filename=key.name)
    return _opened(gateway, key, form)


def _opened(gateway: Gateway, key: Key, form: str) -> Response:
    """It stays readable to its end, even if it is removed meanwhile."""
    file = gateway.storage.open(key)
    headers = {
        "Content-Length": str(file.size()),
        "Content-Disposition": f'attachment; filename="{key.name}"',
    }

    def pieces() -> Iterator[bytes]:
        with file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    return StreamingResponse(pieces(), media_type=_MEDIA_TYPES[form], headers=headers)
