"""The answers of a run as files taken from a gateway, and those files as answers again."""

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.client.calls import Calls
from kopitiam.contracts.errors import InputError, RunNotFound, ServiceError
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import Rejected
from kopitiam.results.forms import REJECTED_FILE, SUMMARY_FILE
from kopitiam.results.summary import Coverage, RowCount, Summary

FORMS = ("csv", "json", "parquet")
_BATCH_ROWS = 65_536
_EXAMPLES = 5


def download(
    calls: Calls, run: str, out: Path, forms: tuple[str, ...] = FORMS, *, provisional: bool = False
) -> None:
    """Each file appears when it is whole; the summary comes last: where it stands, all the others do too."""
    require_writable(out)
    for stale in (SUMMARY_FILE, REJECTED_FILE):
        (out / stale).unlink(missing_ok=True)
    for answer in ANSWERS.values():
        for form in forms:
            calls.fetch_result(run, f"{answer.name}.{form}", out / _file(answer.name, form), provisional)
    if calls.status(run).rejected:
        with suppress(RunNotFound):  # they were counted, and never sent
            calls.fetch_rejected(run, out / REJECTED_FILE)
    calls.fetch_result(run, SUMMARY_FILE, out / SUMMARY_FILE, provisional)


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
        return pq.read_schema(self._path(name))

    def rows(self, name: str) -> int:
        return int(pq.read_metadata(self._path(name)).num_rows)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._path(name)) as file:
            yield from file.iter_batches(_BATCH_ROWS)

    @property
    def summary(self) -> Summary:
        try:
            return _summary(json.loads((self.folder / SUMMARY_FILE).read_bytes()))
        except (ValueError, KeyError, TypeError):
            raise ServiceError(f"{SUMMARY_FILE}: not a summary as this version knows it") from None

    @property
    def examples(self) -> list[Rejected]:
        """The first rejected rows."""
        path = self.folder / REJECTED_FILE
        if not path.exists():
            return []
        csv.field_size_limit(sys.maxsize)  # a rejected row may be as long as it likes
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(islice(csv.DictReader(file), _EXAMPLES))
        return [Rejected(row["file"], int(row["line"]), row["reason"], row["row"]) for row in rows]

    def _path(self, name: str) -> Path:
        return self.folder / _file(name, "parquet")


def require_answer(name: str) -> str:
    if name not in ANSWERS:
        raise InputError(f"no answer {name!r}; there are {', '.join(ANSWERS)}")
    return name


def _file(name: str, form: str) -> str:
    return Path(ANSWERS[name].csv_name).with_suffix(f".{form}").name


def _summary(read: dict[str, Any]) -> Summary:
    return Summary(
        Questions.from_dict(read["questions"]),
        {name: RowCount(count["used"], count["rejected"]) for name, count in read["tables"].items()},
        dict(read["unmatched"]),
        dict(read["answers"]),
        float(read["seconds"]),
        Coverage(**read["coverage"]) if "coverage" in read else None,
    )
