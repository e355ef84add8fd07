"""Answers, in their three forms and as a report, and the rows that were set aside."""

import functools
import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse

from kopitiam.contracts.api import ATTEMPT_HEADER, CSV, PARQUET
from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.runs import Run
from kopitiam.gateway.answers import (
    answer_files,
    are_provisional,
    attempt_of,
    coverage_now,
    fresh_provisional,
    open_answer,
    read_answers,
    rejected_lines,
    require_sound,
    summary_now,
)
from kopitiam.gateway.context import Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.landing.layout import KEYS
from kopitiam.results.forms import SUMMARY_FILE, covering, form_name
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
Attempt = Annotated[
    str | None,
    Query(
        pattern="^[a-z0-9]{1,32}$",
        description=f"Only of this set of answers, as the header {ATTEMPT_HEADER} of another file names it.",
    ),
]


@router.get("/results/summary.json", response_class=FileResponse, responses=_REFUSALS)
def get_summary(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """The account of the run: rows read, used and rejected, what was asked, what did not match."""
    if not provisional:
        return _file(gateway, run, SUMMARY_FILE, "json", attempt)

    def told(folder: Key) -> Response:
        said = json.dumps(summary_now(gateway, run, folder), indent=2) + "\n"
        return Response(said, media_type=_MEDIA_TYPES["json"], headers=_headers(folder, SUMMARY_FILE))

    return read_answers(gateway, run, told, fresh_provisional, attempt)


@router.get(
    "/results/report.html",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}}, **_REFUSALS},
)
def get_report(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """The report: all answers, charts and the account of rows on one page that loads nothing else."""

    def page_of(folder: Key) -> Response:
        with open_answer(gateway, run, folder / SUMMARY_FILE) as file:
            summary = read_summary(file.read())
        if summary.coverage is not None:
            summary = replace(summary, coverage=coverage_now(gateway, run, summary.coverage))
        rejected = read_rejected(rejected_lines(gateway, run), EXAMPLES)
        page = report(answer_files(gateway, run, folder), summary, run.label, rejected)
        policy = {"Content-Security-Policy": content_policy(), ATTEMPT_HEADER: attempt_of(folder)}
        return HTMLResponse(page, headers=policy | _PAGE_HEADERS)

    return read_answers(gateway, run, page_of, fresh_provisional if provisional else None, attempt)


@router.get("/results/{answer}.{form}", response_class=FileResponse, responses=_REFUSALS)
def get_answer(
    run: RunDep,
    answer: AnswerName,
    form: Form,
    gateway: GatewayDep,
    *,
    provisional: Provisional = False,
    attempt: Attempt = None,
) -> Response:
    """One answer: 1, 2_1, 2_2, 3 or 4, as csv, json or parquet.

    A provisional answer says in its JSON how many rows it covers of those that have come.
    """
    name = form_name(ANSWERS[answer], form)
    if not provisional:
        return _file(gateway, run, name, form, attempt)
    opened = functools.partial(_opened, gateway, run, name, form)
    return read_answers(gateway, run, opened, fresh_provisional, attempt)


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


def _file(gateway: Gateway, run: Run, name: str, form: str, attempt: str | None) -> Response:
    def as_it_lies(folder: Key) -> Response:
        key = folder / name
        if not gateway.storage.find(str(key)):
            raise FileNotFoundError(key)
        require_sound(gateway, run, key)
        if (path := gateway.storage.path(key)) is not None:
            return FileResponse(path, media_type=_MEDIA_TYPES[form], headers=_headers(folder, name))
        return _opened(gateway, run, name, form, folder)

    return read_answers(gateway, run, as_it_lies, attempt=attempt)


def _opened(gateway: Gateway, run: Run, name: str, form: str, folder: Key) -> Response:
    """It stays readable to its end, even if it is removed meanwhile."""
    file = open_answer(gateway, run, folder / name)
    size, opening = file.size(), b""
    content = io.BufferedReader(file)
    if form == "json" and are_provisional(run, folder):
        line = content.readline()
        opening = covering(line, functools.partial(coverage_now, gateway, run))
        size += len(opening) - len(line)

    def pieces() -> Iterator[bytes]:
        with content:
            yield opening
            while piece := content.read(_PIECE_BYTES):
                yield piece

    headers = _headers(folder, name) | {"Content-Length": str(size)}
    return StreamingResponse(pieces(), media_type=_MEDIA_TYPES[form], headers=headers)


def _headers(folder: Key, name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"', ATTEMPT_HEADER: attempt_of(folder)}
