"""An upload in small chunks and random order, slow enough that machines and nodes can fail during it."""

import csv
import math
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog_tables import TABLES
from kopitiam.client.calls import Calls
from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.client.http import Transport
from kopitiam.client.run_handle import RunHandle
from kopitiam.contracts.api import End, OpenRun
from kopitiam.contracts.tables import Rejected
from kopitiam.landing.chunks import encode
from kopitiam.verification import verify

PATIENCE_SECONDS = 120.0
CHUNK_ROWS = 100
_PAUSE_SECONDS = 0.3
_QUOTA_SECONDS = 0.1


@dataclass(frozen=True)
class Piece:
    table: str
    number: int
    rows: int
    data: bytes


class TimedTransport(Transport):
    """Remembers the longest single request, and the longest call with all its retries."""

    longest_request = 0.0
    longest_call = 0.0

    def _retry(self, attempt: Callable[..., Any]) -> Any:
        def timed(*arguments: Any) -> Any:
            sent = time.monotonic()
            try:
                return attempt(*arguments)
            finally:
                self.longest_request = max(self.longest_request, time.monotonic() - sent)

        begun = time.monotonic()
        try:
            return super()._retry(timed)
        finally:
            self.longest_call = max(self.longest_call, time.monotonic() - begun)


class Trickle:
    """A run uploaded slowly in small chunks in random order; the last chunk waits for `may_finish`."""

    def __init__(
        self,
        url: str,
        data: Path,
        chunk_rows: int = CHUNK_ROWS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.may_finish, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.sent = 0
        self.quota: float = math.inf  # pieces that may be sent before `may_finish`
        self.transport = TimedTransport(url, patience_seconds=patience_seconds)
        self._patience_seconds = patience_seconds
        self._calls = Calls(self.transport)
        self._pieces = _pieces(data, chunk_rows)
        self.run = self._calls.open_run(OpenRun(label="trickle", idempotency_key=uuid.uuid4().hex)).run

    @property
    def pieces(self) -> int:
        return len(self._pieces)

    def send(self) -> None:
        *early, last = self._pieces
        for piece in early:
            self._await_quota()
            self._put(piece)
            self.may_finish.wait(_PAUSE_SECONDS)
        while not self.may_finish.wait(1):
            self._calls.status(self.run)  # fails if the run is gone
        self._put(last)
        self.may_end.wait()
        for table in TABLES:
            rows = [piece.rows for piece in self._pieces if piece.table == table]
            self._calls.end(self.run, f"tables/{table}", End(chunks=len(rows), rows=sum(rows)))

    def fetch(self, out: Path) -> None:
        handle = RunHandle(self.run, self._calls)
        handle.wait(self._patience_seconds)
        handle.download(out)

    def rows(self) -> dict[str, int]:
        """Rows of each table, as the fleet reports them."""
        return {name: table.rows for name, table in self._calls.status(self.run).tables.items()}

    def close(self) -> None:
        """Stop the upload and its retries."""
        self.may_finish.set()
        self.may_end.set()
        self.transport.close()

    def _await_quota(self) -> None:
        while self.sent >= self.quota and not self.may_finish.wait(_QUOTA_SECONDS):
            pass

    def _put(self, piece: Piece) -> None:
        self._calls.put_chunk(self.run, f"tables/{piece.table}", piece.number, piece.data)
        self.sent += 1


def check_answers(data: Path, out: Path) -> None:
    report = verify(data, out)
    assert report.is_equal, report.differences


def rows_of(data: Path) -> dict[str, int]:
    """Rows by table, counted in the CSV files."""
    return {folder.name: sum(map(_rows_in, folder.iterdir())) for folder in data.iterdir()}


def _rows_in(file: Path) -> int:
    with file.open(encoding="utf-8", newline="") as lines:
        return sum(1 for row in csv.reader(lines) if row) - 1


def _pieces(data: Path, chunk_rows: int) -> list[Piece]:
    pieces = []
    with ThreadPoolExecutor(1) as parser:
        for table in TABLES:
            for chunk in read_chunks(
                open_folder(data, TABLES), TABLES[table], parser, _refuse, chunk_rows=chunk_rows
            ):
                content = encode(chunk.table, chunk.rows)
                pieces.append(Piece(table, chunk.number, chunk.rows.num_rows, content))
    random.Random(7).shuffle(pieces)
    return pieces


def _refuse(rejected: Rejected) -> None:
    raise AssertionError(f"a bad row: {rejected}")
