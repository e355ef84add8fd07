"""The answers of a run as files taken from a gateway, and those files as answers again."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kopitiam.client.calls import Calls
from kopitiam.contracts.errors import InputError, RunNotFound, Unavailable
from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.tables import Rejected
from kopitiam.results.forms import REJECTED_FILE, SUMMARY_FILE
from kopitiam.results.reading import REPORT_FILE, AnswerFiles, read_rejected, read_summary
from kopitiam.results.summary import Summary

FORMS = ("csv", "json", "parquet", "html")  # the last is the report, one for all answers
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
    for answer in ANSWERS.values():
        for form in forms:
            if form != "html":
                calls.fetch_result(run, f"{answer.name}.{form}", out / _file(answer.name, form), query)
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

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        return self._files.batches(name)

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
    def _files(self) -> AnswerFiles:
        return AnswerFiles.of(self.folder)


def require_answer(name: str) -> str:
    if name not in ANSWERS:
        raise InputError(f"no answer {name!r}; there are {', '.join(ANSWERS)}")
    return name


def _file(name: str, form: str) -> str:
    return Path(ANSWERS[name].csv_name).with_suffix(f".{form}").name
