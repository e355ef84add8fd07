"""Calls about the answers of a run: index, files, charts, report, workbook, and the file of rejected rows."""

import base64
import contextlib
import functools
import gzip
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from kopitiam.contracts.api import ATTEMPT_HEADER, CSV, PARQUET, AnswerIndex
from kopitiam.contracts.runs import Run
from kopitiam.gateway.context import EarlierRunDep, Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.run_answers import (
    answer_files,
    answer_view,
    are_provisional,
    attempt_of,
    coverage_now,
    fresh_provisional,
    open_answer,
    read_answers,
    rejected_files,
    summary_now,
    verify_file,
)
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answer_files import (
    SUMMARY_FILE,
    WORKBOOK_FILE,
    read_rejected,
    read_summary,
    rejected_csv,
    rejected_lines,
    with_current_coverage,
)
from kopitiam.results.answers import Answers
from kopitiam.results.changes import AnswerChanges, ChangesSince, compare_all
from kopitiam.results.charts.rendering import MEDIA_TYPE as SVG
from kopitiam.results.charts.rendering import STYLE, ImageForm, standalone_svg
from kopitiam.results.report import EXAMPLES, content_policy, report
from kopitiam.results.summary import RunSummary
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
_REFUSALS = refusals(409, 410)
PIECE_BYTES = 1 << 20
_MOST_COMPARED = 400_000  # rows that a comparison holds in the memory of a gateway
_PAGE_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
FILE_TYPES = {"csv": CSV, "json": "application/json", "parquet": PARQUET}
_IMAGE_TYPES: dict[str, str] = {"svg": SVG, "png": "image/png", "pdf": "application/pdf"}
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_PICTURE_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; sandbox"

Form = Literal["csv", "json", "parquet", "svg", "png", "pdf"]
Provisional = Annotated[
    bool, Query(description="Before the run is done: answers from the rows processed so far.")
]
Attempt = Annotated[
    str | None,
    Query(
        pattern="^[a-z0-9]{1,32}$",
        description=f"Only of this attempt, as named in the header {ATTEMPT_HEADER} of another file.",
    ),
]


def _question(run: RunDep, answer: Annotated[str, Path(description="A question of the run.")]) -> Question:
    """Return the question of the path. A name is looked up in the run before it can become part of a key."""
    questions = QuestionSet.from_dict(run.questions).by_name
    if answer not in questions:
        names = list(questions)
        message = f"question {answer[:60]!r}: this run answers {', '.join(names)}"
        raise Refusal(404, "not_found", message, questions=names)
    return questions[answer]


QuestionDep = Annotated[Question, Depends(_question)]


def _contents(*media_types: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media_type: {} for media_type in media_types}}, **_REFUSALS}


@router.get("/results", responses=_REFUSALS)
def get_index(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> AnswerIndex:
    """The answers of the run: what was asked, rows, columns, and what the charts show and leave out."""

    def index(folder: Key) -> AnswerIndex:
        summary = summary_now(gateway, run, folder)
        answers = answer_files(gateway, run, folder)
        views = [
            answer_view(run, question, answers, gateway.charts.drawing(folder, answers, question))
            for question in answers.question_set.questions
        ]
        return AnswerIndex(
            answers=views,
            summary=summary,
            provisional=are_provisional(run, folder),
            attempt=attempt_of(folder),
        )

    return read_answers(gateway, run, index, fresh_provisional if provisional else None, attempt)


@router.get("/results/summary.json", response_class=FileResponse, responses=_REFUSALS)
def get_summary(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """The summary of the run: its questions, rows read, used and rejected, and unmatched ids."""
    if not provisional:
        return _file(gateway, run, SUMMARY_FILE, "json", attempt)

    def current(folder: Key) -> Response:
        text = json.dumps(summary_now(gateway, run, folder), indent=2) + "\n"
        return Response(text, media_type=FILE_TYPES["json"], headers=_headers(folder, SUMMARY_FILE))

    return read_answers(gateway, run, current, fresh_provisional, attempt)


@router.get("/results/report.html", response_class=Response, responses=_contents("text/html"))
def get_report(
    run: RunDep,
    gateway: GatewayDep,
    earlier: EarlierRunDep,
    provisional: Provisional = False,
    attempt: Attempt = None,
) -> Response:
    """The report: all answers, charts and row counts on one page that loads nothing else.

    With `since`, the answers of that run stand beside them: what is new, gone or has changed.
    """

    def page(folder: Key) -> Response:
        summary = _summary(gateway, run, folder)
        rejected = read_rejected(rejected_lines(gateway.storage, rejected_files(gateway, run)), EXAMPLES)
        answers = answer_files(gateway, run, folder)
        changes = _changes(gateway, earlier, answers) if earlier else None
        text = report(answers, summary, run.label, rejected, gateway.charts.renderer, changes=changes)
        policy = {"Content-Security-Policy": content_policy(), ATTEMPT_HEADER: attempt_of(folder)}
        return HTMLResponse(text, headers=policy | _PAGE_HEADERS)

    return read_answers(gateway, run, page, fresh_provisional if provisional else None, attempt)


@router.get("/results/changes.json", responses=_REFUSALS)
def get_changes(run: RunDep, gateway: GatewayDep, earlier: EarlierRunDep) -> dict[str, Any]:
    """How the answers differ from those of the run `since`, for each question that both asked.

    How many rows are new, gone, changed and the same, and the first that differ, as values and as texts.
    """
    if earlier is None:
        raise Refusal(422, "invalid", "since: name the run to compare with")

    def compared(folder: Key) -> dict[str, Any]:
        changes = _changes(gateway, earlier, answer_files(gateway, run, folder))
        return {name: _with_texts(of_question) for name, of_question in changes.by_question.items()}

    return read_answers(gateway, run, compared)


def _with_texts(changes: AnswerChanges) -> dict[str, Any]:
    """Changes for programs, and as a table for people: titles, places of figures, cells."""
    return changes.to_dict() | {
        "text": changes.text,
        "titles": changes.titles,
        "figures": sorted(changes.figure_places),
        "cells": list(changes.cells()),
        "left_out": changes.left_out,
    }


def _changes(gateway: Gateway, earlier: Run, answers: Answers) -> ChangesSince:
    """Compare answers with those of an earlier run. Raises Refusal (422) if no question is the same."""

    def compared(folder: Key) -> ChangesSince:
        before, data = answer_files(gateway, earlier, folder), _summary(gateway, earlier, folder).data
        since = f"version {data.version}" if data else f"run {earlier.run}"
        return compare_all(before, answers, since, _MOST_COMPARED)

    changes = read_answers(gateway, earlier, compared)
    if not changes.by_question:
        raise Refusal(422, "invalid", f"since: run {earlier.run} has other questions")
    return changes


@router.get(f"/results/{WORKBOOK_FILE}", response_class=Response, responses=_contents(XLSX))
def get_workbook(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """All answers as a workbook, with a sheet for each."""
    from kopitiam.results.workbook import write_workbook  # noqa: PLC0415 - few gateways need it

    def workbook(folder: Key) -> Response:
        summary, answers = _summary(gateway, run, folder), answer_files(gateway, run, folder)
        headers = _headers(folder, WORKBOOK_FILE)
        return made_file(gateway, XLSX, headers, lambda path: write_workbook(path, answers, summary))

    return read_answers(gateway, run, workbook, fresh_provisional if provisional else None, attempt)


@router.get(
    "/results/{answer}.{form}",
    response_class=Response,
    responses=_contents(*FILE_TYPES.values(), *_IMAGE_TYPES.values()),
)
def get_answer(
    run: RunDep,
    question: QuestionDep,
    form: Form,
    gateway: GatewayDep,
    request: Request,
    *,
    provisional: Provisional = False,
    attempt: Attempt = None,
) -> Response:
    """One answer as csv, json or parquet, or its chart as svg, png or pdf.

    A provisional answer says in its JSON how many of the received rows it covers. An answer without a
    chart is refused with 404 `no_chart` and the reason.
    """
    if form in _IMAGE_TYPES:
        image = functools.partial(_image, gateway, run, question, form)
        response = read_answers(gateway, run, image, fresh_provisional if provisional else None, attempt)
        return _compressed(request, response) if form == "svg" else response
    name = question.file_name(form)
    if not provisional:
        return _file(gateway, run, name, form, attempt)
    streamed = functools.partial(_streamed, gateway, run, name, form)
    return read_answers(gateway, run, streamed, fresh_provisional, attempt)


@router.get("/rejected.csv", response_class=Response, responses=_contents(CSV))
def get_rejected(run: RunDep, gateway: GatewayDep) -> Response:
    """All rows that the client or the gateway rejected, with file, line and reason."""
    files = rejected_files(gateway, run)
    if not files:
        raise Refusal(404, "not_found", "no row was rejected")
    return StreamingResponse(rejected_csv(gateway.storage, files), media_type=CSV)


def made_file(
    gateway: Gateway, media_type: str, headers: dict[str, str], write: Callable[[FilePath], object]
) -> FileResponse:
    """Serve a file that is written for this response, and removed after it."""
    with tempfile.NamedTemporaryFile(dir=gateway.incoming, delete=False) as file:
        path = FilePath(file.name)
    remove = functools.partial(path.unlink, missing_ok=True)
    with contextlib.ExitStack() as undo:
        undo.callback(remove)
        write(path)
        undo.pop_all()
    return FileResponse(path, media_type=media_type, headers=headers, background=BackgroundTask(remove))


def _summary(gateway: Gateway, run: Run, folder: Key) -> RunSummary:
    """Read the summary, with the current coverage."""
    with open_answer(gateway, run, folder / SUMMARY_FILE) as file:
        summary = read_summary(file.read())
    if summary.coverage is None:
        return summary
    return replace(summary, coverage=coverage_now(gateway, run, summary.coverage))


def _image(gateway: Gateway, run: Run, question: Question, form: Form, folder: Key) -> Response:
    """Render a chart. Raises FileNotFoundError if the answers are removed, even if the chart is cached."""
    _require_file(gateway, folder / question.file_name("parquet"))
    svg = gateway.charts.picture(folder, answer_files(gateway, run, folder), question)
    headers = _headers(folder, question.file_name(form)) | _PAGE_HEADERS
    if form == "svg":
        policy = {"Content-Security-Policy": _PICTURE_POLICY}
        return Response(standalone_svg(svg), media_type=SVG, headers=headers | policy)
    as_image: ImageForm = "png" if form == "png" else "pdf"
    content = gateway.charts.renderer.image(svg, as_image)
    return Response(content, media_type=_IMAGE_TYPES[form], headers=headers)


def _compressed(request: Request, response: Response) -> Response:
    """Compress an SVG if the client accepts it: to about a sixth."""
    headers = dict(response.headers) | {"Vary": "Accept-Encoding"}
    content = bytes(response.body)
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, compresslevel=6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    headers["content-length"] = str(len(content))
    return Response(content, headers=headers)


def _file(gateway: Gateway, run: Run, name: str, form: str, attempt: str | None) -> Response:
    def as_stored(folder: Key) -> Response:
        key = folder / name
        _require_file(gateway, key)
        verify_file(gateway, run, key)
        if (path := gateway.storage.path(key)) is not None:
            return FileResponse(path, media_type=FILE_TYPES[form], headers=_headers(folder, name))
        return _streamed(gateway, run, name, form, folder)

    return read_answers(gateway, run, as_stored, attempt=attempt)


def _require_file(gateway: Gateway, key: Key) -> None:
    if not gateway.storage.find(str(key)):
        raise FileNotFoundError(key)


def _streamed(gateway: Gateway, run: Run, name: str, form: str, folder: Key) -> Response:
    """Stream an open file: it stays readable to its end, even if it is removed meanwhile."""
    file = open_answer(gateway, run, folder / name)
    size, opening = file.size(), b""
    content = io.BufferedReader(file)
    if form == "json" and are_provisional(run, folder):
        line = content.readline()
        opening = with_current_coverage(line, functools.partial(coverage_now, gateway, run))
        size += len(opening) - len(line)

    def pieces() -> Iterator[bytes]:
        with content:
            yield opening
            while piece := content.read(PIECE_BYTES):
                yield piece

    headers = _headers(folder, name) | {"Content-Length": str(size)}
    return StreamingResponse(pieces(), media_type=FILE_TYPES[form], headers=headers)


def _headers(folder: Key, name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"', ATTEMPT_HEADER: attempt_of(folder)}
