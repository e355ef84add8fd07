"""The answers of a run: their folder (published or provisional), their files, and their entries in the index.

How answers are written and read is in `results`; the HTTP calls are in `routes.results` and `routes.rows`.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa

from kopitiam.contracts.api import AnswerView, ChartView, IndexColumn, PivotView
from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import PROVISIONAL_QUEUE, ProvisionalWanted
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.problems import Refusal
from kopitiam.questions.definitions import AnswerColumn, Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.questions.rows_behind import reason_against
from kopitiam.results.answer_files import SUMMARY_FILE, AnswerFiles
from kopitiam.results.answers import Answers
from kopitiam.results.charts.drawing import Drawing, NoChart
from kopitiam.results.descriptions import describe
from kopitiam.results.report import MOST_PERIODS, pivot_of, table_columns
from kopitiam.results.summary import Coverage
from kopitiam.storage.port import Key

T = TypeVar("T")
PROVISIONAL_SECONDS = 30.0  # for which a call waits for a pipeline
_POLL_SECONDS = 0.1
_TRIES = 3  # newer answers may replace the folder while it is read


def read_answers(
    gateway: Gateway,
    run: Run,
    read: Callable[[Key], T],
    provisional: Callable[[Gateway, Run], Key] | None = None,
    attempt: str | None = None,
) -> T:
    """Call `read` with the folder of the answers, and return its result. The folder is that of `attempt` if
    given, the one that `provisional` returns while the run is not over, else that of the published answers.

    Newer answers replace provisional ones and remove their folder; then the newer ones are read, unless an
    `attempt` was given. Raises Refusal: 404 if the answers were removed, 409 if there are none yet, 410 if
    the run ended.
    """
    if attempt is not None:
        try:
            return read(_attempt_folder(gateway, run, attempt))
        except FileNotFoundError:
            raise Refusal(404, "replaced", "newer answers have replaced this attempt") from None
    for _ in range(_TRIES):
        find = _published_folder if provisional is None or run.state.is_over else provisional
        try:
            return read(find(gateway, run))
        except FileNotFoundError:
            run = gateway.registry.get_run(run.run)
    raise Refusal(404, "not_found", "the answers of this run were removed")


def _published_folder(gateway: Gateway, run: Run) -> Key:
    published = gateway.registry.results(run.run)
    if published is not None:
        return KEYS.attempt(run.run, published.attempt)
    if run.state is RunState.ENDED:
        raise Refusal(410, "over", f"the run was ended: {run.error or 'cancelled'}")
    why = f": {run.error}" if run.error else ""
    raise Refusal(409, "not_ready", f"no answers: the run is {run.state.value}{why}", state=run.state.value)


def _attempt_folder(gateway: Gateway, run: Run, attempt: str) -> Key:
    published = gateway.registry.results(run.run)
    is_published = published is not None and published.attempt == attempt
    return KEYS.attempt(run.run, attempt) if is_published else KEYS.provisional(run.run, attempt)


def fresh_provisional(gateway: Gateway, run: Run) -> Key:
    """Return the folder of provisional answers that cover all rows processed by now. Waits for a pipeline to
    make them; returns the published answers if those come first."""
    try:
        return KEYS.provisional(run.run, provisional_attempt(gateway, run))
    except RunOver:
        published = gateway.registry.results(run.run)
        if published is None:
            raise
        return KEYS.attempt(run.run, published.attempt)


def latest_provisional(gateway: Gateway, run: Run) -> Key:
    """Return the folder of the latest provisional answers. Makes them only if there are none: paging through
    an answer should not merge partials for each page."""
    latest = gateway.registry.provisional(run.run)
    return KEYS.provisional(run.run, latest.attempt) if latest else fresh_provisional(gateway, run)


def attempt_of(folder: Key) -> str:
    return folder.name.partition("=")[2]


def are_provisional(run: Run, folder: Key) -> bool:
    """Whether the folder has provisional answers. A request for those may also find the published ones."""
    return folder == KEYS.provisional(run.run, attempt_of(folder))


def coverage_now(gateway: Gateway, run: Run, coverage: Coverage) -> Coverage:
    """Return the coverage of provisional answers, with the rows that have arrived since they were made."""
    return coverage.of_now(gateway.registry.table_states(run.run))


def summary_now(gateway: Gateway, run: Run, folder: Key) -> dict[str, Any]:
    """Return the content of the summary file, with the coverage of now."""
    with open_answer(gateway, run, folder / SUMMARY_FILE) as file:
        summary: dict[str, Any] = json.loads(file.read())
    if "coverage" in summary:
        summary["coverage"] = asdict(coverage_now(gateway, run, Coverage(**summary["coverage"])))
    return summary


def answer_files(gateway: Gateway, run: Run, folder: Key) -> AnswerFiles:
    questions = QuestionSet.from_dict(run.questions)
    return AnswerFiles(questions, lambda name: open_answer(gateway, run, folder / name))


def open_answer(gateway: Gateway, run: Run, key: Key) -> pa.NativeFile:
    """Open a file of answers. Raises Refusal (500) if it is damaged."""
    verify_file(gateway, run, key)
    return gateway.storage.open(key)


def verify_file(gateway: Gateway, run: Run, key: Key) -> None:
    """Raise Refusal (500) if a published file is damaged. Provisional files have no digests."""
    if not are_provisional(run, key.parent):
        gateway.verified_files.verify(key, lambda: gateway.registry.results(run.run))


def rejected_files(gateway: Gateway, run: Run) -> list[Key]:
    """Return the files with rejected rows of a run, or of the data files that it answers over."""
    owners = [run.run]
    if run.data is not None:
        owners = [file.file for file in gateway.registry.run_files(run.run) if file.rejected]
    return [key for owner in owners for key in gateway.storage.find(f"{KEYS.rejected(owner)}/*.csv")]


def provisional_attempt(gateway: Gateway, run: Run, pause: Callable[[float], None] = time.sleep) -> str:
    """Return the attempt of provisional answers that cover all rows processed by now.

    Asks a pipeline over the bus and polls the registry for them. Raises RunOver, or Refusal: 503, or 409 if
    the run still sends files to a data set, since most of that may not be among its rows yet.
    """
    if run.data is not None and run.state is RunState.OPEN:
        raise Refusal(409, "not_ready", "provisional answers begin when all files are sent", state="open")
    rows = _rows_processed(gateway, run.run)
    if (attempt := _attempt_covering(gateway, run, rows)) is not None:
        return attempt
    with gateway.admission.waiting():
        gateway.bus.send(PROVISIONAL_QUEUE, ProvisionalWanted(run=run.run))
        deadline = time.monotonic() + PROVISIONAL_SECONDS
        while (attempt := _attempt_covering(gateway, run, rows)) is None:
            if gateway.registry.get_run(run.run).state.is_over:
                raise RunOver(f"run {run.run} is over; ask for its answers instead")
            if time.monotonic() > deadline:
                raise Refusal(503, "not_ready", "no pipeline has answered yet; try again")
            pause(_POLL_SECONDS)
    return attempt


def _attempt_covering(gateway: Gateway, run: Run, rows: int) -> str | None:
    latest = gateway.registry.provisional(run.run)
    if latest is None or latest.figures["processed"] < rows:
        return None
    is_complete = run.state is RunState.OPEN or latest.figures["expected"] is not None
    return latest.attempt if is_complete else None


def _rows_processed(gateway: Gateway, run: str) -> int:
    progress = gateway.registry.progress(run)
    return sum(volume.rows for by_shard in progress.values() for volume in by_shard.values())


def answer_view(run: Run, question: Question, answers: Answers, drawing: Drawing | NoChart) -> AnswerView:
    """Return the entry of one answer in the index: all that a page needs to show any answer."""
    parameters: Parameters = answers.question_set.parameters
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
        about=describe(question, parameters),
        file=question.file_stem,
        rows=drawing.rows,
        columns=[_column(question, column, listed) for column in question.answer_columns],
        chart=chart,
        note=drawing.reason if isinstance(drawing, NoChart) else "",
        pivot=PivotView(**asdict(pivot), most_periods=MOST_PERIODS) if pivot else None,
        unlisted=_reason_against_listing(run, question),
    )


def _reason_against_listing(run: Run, question: Question) -> str:
    """Return why the rows behind the figures of an answer cannot be listed; empty if they can."""
    if run.data is None:
        return "The rows behind these figures are gone: this run is not over a data set, which keeps files."
    reason = reason_against(question)
    return f"The rows behind these figures cannot be listed: {reason}." if reason else ""


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
