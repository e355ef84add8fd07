"""Calls about the answers of a run: index, files, charts, report, workbook, and the file of rejected rows."""

import base64
import contextlib
import functools
import gzip
import hashlib
import io
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from kopitiam.contracts.api import ATTEMPT_HEADER, CSV, PARQUET, AnswerIndex
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import Run
from kopitiam.gateway.context import Gateway, GatewayDep, RunDep
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
    rejected_lines,
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
    with_current_coverage,
)
from kopitiam.results.charts.rendering import MEDIA_TYPE as SVG
from kopitiam.results.charts.rendering import STYLE, ImageForm, standalone_svg
from kopitiam.results.report import EXAMPLES, content_policy, report
from kopitiam.results.summary import RunSummary
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
_REFUSALS = refusals(409, 410)
_PIECE_BYTES = 1 << 20
_PAGE_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_FILE_TYPES = {"csv": CSV, "json": "application/json", "parquet": PARQUET}
_IMAGE_TYPES: dict[str, str] = {"svg": SVG, "png": "image/png", "pdf": "application/pdf"}
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
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
            answer_view(question, answers, gateway.charts.drawing(folder, answers, question))
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
        return Response(text, media_type=_FILE_TYPES["json"], headers=_headers(folder, SUMMARY_FILE))

    return read_answers(gateway, run, current, fresh_provisional, attempt)


@router.get("/results/report.html", response_class=Response, responses=_contents("text/html"))
def get_report(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """The report: all answers, charts and row counts on one page that loads nothing else."""

    def page(folder: Key) -> Response:
        summary = _summary(gateway, run, folder)
        rejected = read_rejected(rejected_lines(gateway, run), EXAMPLES)
        answers = answer_files(gateway, run, folder)
        text = report(answers, summary, run.label, rejected, gateway.charts.renderer)
        policy = {"Content-Security-Policy": content_policy(), ATTEMPT_HEADER: attempt_of(folder)}
        return HTMLResponse(text, headers=policy | _PAGE_HEADERS)

    return read_answers(gateway, run, page, fresh_provisional if provisional else None, attempt)


@router.get(f"/results/{WORKBOOK_FILE}", response_class=Response, responses=_contents(_XLSX))
def get_workbook(
    run: RunDep, gateway: GatewayDep, provisional: Provisional = False, attempt: Attempt = None
) -> Response:
    """All answers as a workbook, with a sheet for each."""
    from kopitiam.results.workbook import write_workbook  # noqa: PLC0415 - few gateways need it

    def workbook(folder: Key) -> Response:
        summary, answers = _summary(gateway, run, folder), answer_files(gateway, run, folder)
        with tempfile.NamedTemporaryFile(dir=gateway.incoming, suffix=".xlsx", delete=False) as file:
            path = FilePath(file.name)
        remove = functools.partial(path.unlink, missing_ok=True)
        with contextlib.ExitStack() as undo:
            undo.callback(remove)
            write_workbook(path, answers, summary)
            undo.pop_all()
        headers = _headers(folder, WORKBOOK_FILE)
        return FileResponse(path, media_type=_XLSX, headers=headers, background=BackgroundTask(remove))

    return read_answers(gateway, run, workbook, fresh_provisional if provisional else None, attempt)


@router.get(
    "/results/{answer}.{form}",
    response_class=Response,
    responses=_contents(*_FILE_TYPES.values(), *_IMAGE_TYPES.values()),
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
    files = gateway.storage.find(f"{KEYS.rejected(run.run)}/*.csv")
    if not files:
        raise Refusal(404, "not_found", "no row was rejected")

    def lines() -> Iterator[bytes]:
        for position, file in enumerate(files):
            with io.BufferedReader(gateway.storage.open(file)) as content:
                yield from itertools.islice(content, 1 if position else 0, None)

    return StreamingResponse(lines(), media_type=CSV)


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
            return FileResponse(path, media_type=_FILE_TYPES[form], headers=_headers(folder, name))
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
            while piece := content.read(_PIECE_BYTES):
                yield piece

    headers = _headers(folder, name) | {"Content-Length": str(size)}
    return StreamingResponse(pieces(), media_type=_FILE_TYPES[form], headers=headers)


def _headers(folder: Key, name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"', ATTEMPT_HEADER: attempt_of(folder)}
