"""The client's calls in the process of the pipeline: chunks go from the reader to the chunk log without a
gateway. Nothing is synced or checked again, since the files end with this process, which made them."""

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.bus.port import BusPort
from kopitiam.contracts.api import DurableChunks, End, RunStatus
from kopitiam.contracts.errors import RunNotFound, ServiceError, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.gateway.announcements import publish_end
from kopitiam.gateway.status import run_status
from kopitiam.landing.rejected import store_rejected
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.registry import Registry
from kopitiam.results.answer_files import (
    REPORT_FILE,
    SUMMARY_FILE,
    AnswerFiles,
    read_rejected,
    read_summary,
    rejected_csv,
    rejected_lines,
)
from kopitiam.storage.port import Key, StoragePort


@dataclass(frozen=True)
class LocalCalls:
    """The calls of one client on a registry and a storage that nobody else uses."""

    registry: Registry
    storage: StoragePort
    bus: BusPort
    shards: int

    @property
    def senders(self) -> int:
        return os.cpu_count() or 1  # senders only encode chunks

    def branch(self) -> "LocalCalls":
        return self

    def abandon(self) -> None:
        pass  # no call waits

    def clock(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def status(self, run: str) -> RunStatus:
        return run_status(self.registry, run)

    def cancel(self, run: str) -> RunStatus:
        self.registry.force_end(run, "cancelled")
        return self.status(run)

    def durable(self, run: str, place: str) -> DurableChunks:
        """Return none: a run of this process is never resumed."""
        del run
        return DurableChunks(table=_table(place), rows=0, chunks=[])

    def put_chunk(self, run: str, place: str, number: int, data: bytes) -> None:
        """Write the chunk and register it. The digest is part of the fingerprint of the input."""
        table = _table(place)
        digest = hashlib.sha256(data).hexdigest()
        key = KEYS.chunk(run, table, number % self.shards, number)
        self._write(self.storage.name_of(key, digest), data)
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        self.registry.register_chunk(
            run, table, number, digest=digest, rows=rows, bytes=len(data), rejected=0
        )

    def put_rejected(self, run: str, place: str, data: bytes, part: int = 0, parts: int = 1) -> None:
        store_rejected(self.storage, run, _table(place), data, part=part, parts=parts)

    def end(self, run: str, place: str, end: End) -> None:
        table = _table(place)
        ended = self.registry.end_table(run, table, end.chunks, end.rows, end.rejected)
        if not ended.sealed:
            raise ServiceError(f"run {run}: {table} is not complete: {ended}")
        publish_end(self.registry, self.bus, run, table)

    def fetch_result(self, run: str, file: str, target: Path, query: str = "") -> None:
        assert not query, "analyses have no provisional and no earlier answers"
        published = self.registry.results(run)
        if published is None:
            raise RunNotFound(f"run {run} has no answers")
        folder = KEYS.attempt(run, published.attempt)
        if file == REPORT_FILE:
            target.write_text(self._report(run, folder), encoding="utf-8")
            return
        question, _, form = file.rpartition(".")
        questions = QuestionSet.from_dict(self.registry.get_run(run).questions).by_name
        name = file if file == SUMMARY_FILE else questions[question].file_name(form)
        with self.storage.open(folder / name) as stored, target.open("wb") as copy:
            shutil.copyfileobj(stored, copy)

    def fetch_rejected(self, run: str, target: Path) -> None:
        files = self._rejected_files(run)
        if not files:
            raise RunNotFound(f"run {run}: no row was rejected")
        with target.open("wb") as copy:
            copy.writelines(rejected_csv(self.storage, files))

    def _rejected_files(self, run: str) -> list[Key]:
        return self.storage.find(f"{KEYS.rejected(run)}/*.csv")

    def _write(self, key: Key, data: bytes) -> None:
        try:
            self.storage.replace(key, data)
        except OSError as error:
            raise Unavailable(f"chunks cannot be written: {error.strerror or error}") from None

    def _report(self, run: str, folder: Key) -> str:
        from kopitiam.results.report import EXAMPLES, report  # noqa: PLC0415 - only with --out

        with self.storage.open(folder / SUMMARY_FILE) as file:
            summary = read_summary(file.read())
        answers = AnswerFiles(summary.question_set, lambda name: self.storage.open(folder / name))
        rejected = read_rejected(rejected_lines(self.storage, self._rejected_files(run)), EXAMPLES)
        return report(answers, summary, rejected=rejected)


def _table(place: str) -> str:
    return place.removeprefix("tables/")
