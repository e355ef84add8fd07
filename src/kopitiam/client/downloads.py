"""Downloads the answer files of a run, and opens them again."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.client.port import RunCalls
from kopitiam.contracts.errors import InputError, RunNotFound, Unavailable
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answer_files import (
    REJECTED_FILE,
    REPORT_FILE,
    SUMMARY_FILE,
    AnswerFiles,
    read_rejected,
    read_summary,
)
from kopitiam.results.summary import RunSummary

if TYPE_CHECKING:
    from kopitiam.client.calls import Calls

_FORMS_OF_ANSWERS = ("csv", "json", "parquet")
FORMS = (*_FORMS_OF_ANSWERS, "html")  # the last is the report, one for all answers
_EXAMPLES = 5
_TRIES = 5


def download(
    calls: RunCalls, run: str, out: Path, forms: tuple[str, ...] = FORMS, since: str | None = None
) -> None:
    """Download the answer files of a run to the folder `out`. The report compares it with the run `since`.

    A file appears when it is complete. The summary is written last: if it exists, all other files do.
    """

    def fetch(file: str, target: Path) -> None:
        calls.fetch_result(run, file, target, f"?since={since}" if since and file == REPORT_FILE else "")

    _download(calls, run, out, forms, fetch)


def download_provisional(calls: "Calls", run: str, out: Path, forms: tuple[str, ...] = FORMS) -> None:
    """Download the provisional answers of a run, all of one attempt; starts again if a newer one replaces it.

    Raises Unavailable if the answers change faster than they can be downloaded.
    """
    for _ in range(_TRIES):
        attempt = calls.provisional_attempt(run)
        query = "?provisional=true" + (f"&attempt={attempt}" if attempt else "")
        try:
            return _download(calls, run, out, forms, partial(calls.fetch_result, run, query=query))
        except RunNotFound:
            calls.status(run)  # raises if the run itself was removed
    raise Unavailable(f"run {run}: its provisional answers change faster than the download; try again")


def _download(
    calls: RunCalls, run: str, out: Path, forms: tuple[str, ...], fetch: Callable[[str, Path], None]
) -> None:
    require_writable(out)
    for file_name in (SUMMARY_FILE, REJECTED_FILE, REPORT_FILE):
        (out / file_name).unlink(missing_ok=True)
    question_set = QuestionSet.from_dict(calls.status(run).questions)
    for question in question_set.questions:
        for form in forms:
            if form in _FORMS_OF_ANSWERS:
                fetch(f"{question.name}.{form}", out / question.file_name(form))
    if "html" in forms:
        fetch(REPORT_FILE, out / REPORT_FILE)
    if calls.status(run).rejected:
        with suppress(RunNotFound):  # they were counted but never uploaded
            calls.fetch_rejected(run, out / REJECTED_FILE)
    fetch(SUMMARY_FILE, out / SUMMARY_FILE)


def require_writable(out: Path) -> None:
    """Create the folder `out`. Raises InputError if files cannot be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"{out}: cannot write answers there: {error.strerror}") from None


def first_rejected(folder: Path) -> list[Rejected]:
    """Return the first rejected rows of a download, none if it has none."""
    path = folder / REJECTED_FILE
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return read_rejected(file, _EXAMPLES)


def open_download(folder: Path) -> tuple[AnswerFiles, RunSummary]:
    """Open the Parquet files of a download, and read its summary."""
    summary = read_summary((folder / SUMMARY_FILE).read_bytes())
    return AnswerFiles.of(folder, summary.question_set), summary
