"""Clients that upload runs while nodes of a fleet fail, and check that the answers are exact."""

import contextlib
import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleets import PATIENCE_SECONDS, Fleet

from catalog_tables import TABLES
from kopitiam.client.calls import Calls
from kopitiam.client.chunks import read_chunks
from kopitiam.client.client import RunHandle
from kopitiam.client.folder import open_folder
from kopitiam.client.http import Transport
from kopitiam.contracts.api import End, OpenRun
from kopitiam.contracts.tables import Rejected
from kopitiam.landing.chunks import encode
from kopitiam.verification import verify
from kopitiam_chaos.clients import ClientPool, DataFolder, SubmittingClient

_CHUNK_ROWS = 100
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Piece:
    table: str
    number: int
    rows: int
    data: bytes


class Trickle:
    """A run uploaded slowly in small chunks in random order; the last chunk waits for `may_finish`."""

    def __init__(
        self, fleet: Fleet, data: Path, url: str | None = None, chunk_rows: int = _CHUNK_ROWS
    ) -> None:
        self.may_finish = threading.Event()
        self.sent = 0
        self._transport = Transport(url or fleet.url, patience_seconds=PATIENCE_SECONDS)
        self._calls = Calls(self._transport)
        self._pieces = _pieces(data, chunk_rows)
        self.run = self._calls.open_run(OpenRun(label="trickle", idempotency_key=uuid.uuid4().hex)).run

    def send(self) -> None:
        *early, last = self._pieces
        for piece in early:
            self._put(piece)
            self.may_finish.wait(_PAUSE_SECONDS)
        while not self.may_finish.wait(1):
            self._calls.status(self.run)  # fails if the run is gone
        self._put(last)
        for table in TABLES:
            rows = [piece.rows for piece in self._pieces if piece.table == table]
            self._calls.end(self.run, table, End(chunks=len(rows), rows=sum(rows)))

    def fetch(self, out: Path) -> None:
        handle = RunHandle(self.run, self._calls)
        handle.wait(PATIENCE_SECONDS)
        handle.download(out)

    def close(self) -> None:
        """Stop the upload and its retries."""
        self.may_finish.set()
        self._transport.close()

    def _put(self, piece: Piece) -> None:
        self._calls.put_chunk(self.run, piece.table, piece.number, piece.data)
        self.sent += 1


@contextlib.contextmanager
def trickling(fleet: Fleet, data: Path, out: Path, chunk_rows: int = _CHUNK_ROWS) -> Iterator[Trickle]:
    """Upload a run while the block lasts, with some chunks processed when the block begins; then check its
    answers."""
    client = Trickle(fleet, data, chunk_rows=chunk_rows)
    with ThreadPoolExecutor(1) as thread, contextlib.closing(client):
        sending = thread.submit(client.send)
        fleet.wait(lambda: fleet.processed(client.run) or sending.done(), "processing the uploaded chunks")
        yield client
        client.may_finish.set()
        sending.result(PATIENCE_SECONDS)
        client.fetch(out)
    check_answers(data, out)


@contextlib.contextmanager
def submitting(fleet: Fleet, data: Path) -> Iterator[list[str]]:
    """Submit small runs one after the other while the block lasts, and check their answers; yields their
    ids."""
    runs: list[str] = []
    transport = Transport(fleet.url, patience_seconds=PATIENCE_SECONDS)
    folder = DataFolder(data, rows_of(data))
    client = SubmittingClient(
        1, folder, transport, fleet.registry, PATIENCE_SECONDS, lambda outcome: runs.append(str(outcome.run))
    )
    pool = ClientPool([client])
    pool.start()
    try:
        yield runs
        pool.finish(2 * PATIENCE_SECONDS)
    finally:
        pool.abort()
    assert pool.ended == 1, fleet.status_text()
    assert [outcome.complaint for outcome in pool.outcomes if not outcome.is_exact] == [], fleet.status_text()


def check_answers(data: Path, out: Path) -> None:
    report = verify(data, out)
    assert report.is_equal, report.differences


def rows_of(data: Path) -> dict[str, int]:
    """Rows by table, counted as lines of the CSV files."""
    return {
        folder.name: sum(len(file.read_text(encoding="utf-8").splitlines()) - 1 for file in folder.iterdir())
        for folder in data.iterdir()
    }


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
