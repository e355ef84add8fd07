"""The answers of a run as files taken from a gateway, and those files as answers again."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kopitiam.client.calls import Calls
from kopitiam.contracts.errors import InputError, RunNotFound, Unavailable
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.forms import REJECTED_FILE, SUMMARY_FILE, form_name
from kopitiam.results.reading import REPORT_FILE, AnswerFiles, read_rejected, read_summary
from kopitiam.results.summary import Summary

_FORMS_OF_ANSWERS = ("csv", "json", "parquet")
FORMS = (*_FORMS_OF_ANSWERS, "html")  # the last is the report, one for all answers
_EXAMPLES = 5
_TRIES = 5


def download(calls: Calls, run: str, out: Path, forms: tuple[str, ...] = FORMS) -> None:
    """Each file appears when it is whole; the summary comes last: where it stands, all the others do too."""
    _download(calls, run, out, forms, "")


def download_provisional(calls: Calls, run: str, out: Path, forms: tuple[str, ...] = FORMS) -> None:
    """All files of one set: where others take its place meanwhile, of those."""
    for _ in range(_TRIES):
        attempt = calls.provisional_attempt(run)
        query = "?provisional=true" + (f"&attempt={attempt}" if attempt else "")
        try:
            return _download(calls, run, out, forms, query)
        except RunNotFound:
            calls.status(run)  # or it is the run that is gone
    raise Unavailable(f"run {run}: its answers so far change faster than they can be fetched; try again")


def _download(calls: Calls, run: str, out: Path, forms: tuple[str, ...], query: str) -> None:
    require_writable(out)
    for stale in (SUMMARY_FILE, REJECTED_FILE, REPORT_FILE):
        (out / stale).unlink(missing_ok=True)
    asked = QuestionSet.from_dict(calls.status(run).questions)
    for question in asked.questions:
        for form in forms:
            if form in _FORMS_OF_ANSWERS:
                file = f"{question.name}.{form}"
                calls.fetch_result(run, file, out / form_name(question, form), query)
    if "html" in forms:
        calls.fetch_result(run, REPORT_FILE, out / REPORT_FILE, query)
    if calls.status(run).rejected:
        with suppress(RunNotFound):  # they were counted, and never sent
            calls.fetch_rejected(run, out / REJECTED_FILE)
    calls.fetch_result(run, SUMMARY_FILE, out / SUMMARY_FILE, query)


def require_writable(out: Path) -> None:
    """Makes the folder; better found out before an upload than after."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"{out}: cannot write answers there: {error.strerror}") from None


@dataclass(frozen=True)
class DownloadedAnswers:
    """Reads the Parquet files of a download; never more than one batch in memory."""

    folder: Path

    def schema(self, name: str) -> pa.Schema:
        return self._files.schema(name)

    def rows(self, name: str) -> int:
        return self._files.rows(name)

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._files.batches(name, columns)

    @property
    def summary(self) -> Summary:
        return read_summary((self.folder / SUMMARY_FILE).read_bytes())

    @property
    def examples(self) -> list[Rejected]:
        """The first rejected rows."""
        path = self.folder / REJECTED_FILE
        if not path.exists():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return read_rejected(file, _EXAMPLES)

    @property
    def asked(self) -> QuestionSet:
        return self.summary.asked

    @property
    def _files(self) -> AnswerFiles:
        return AnswerFiles.of(self.folder, self.asked)
