"""The upload of a folder: sends the chunks that the gateway lacks, then END with the expected counts.

One thread reads chunks in order, a few others encode and send them; only a few chunks are in memory. The
client keeps no state between uploads: the same folder always gives the same chunks, and the gateway lists
those that it has, so any upload can be resumed.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kopitiam.client.calls import Calls
from kopitiam.client.chunks import Chunk, read_chunks, rejected_parts
from kopitiam.client.folder import InputFolder
from kopitiam.client.refusals import ConflictError, IncompleteError
from kopitiam.client.senders import Senders, heartbeat
from kopitiam.contracts.api import End, RunStatus
from kopitiam.contracts.errors import BadRows, InputError, KopitiamError, RunOver, ServiceError, TableSealed
from kopitiam.contracts.runs import RunState, Span
from kopitiam.contracts.tables import CHUNK_ROWS, Rejected
from kopitiam.landing.chunks import encode
from kopitiam.landing.rejected import RejectedWriter


@dataclass(frozen=True)
class TableProgress:
    """`chunks` and `rows` are durable at the gateway; `resumed` chunks were durable before this upload."""

    table: str
    bytes_read: int
    bytes_total: int
    chunks: int = 0
    rows: int = 0
    resumed: int = 0
    is_sealed: bool = False


Progress = Callable[[TableProgress], None]


class _Meter:
    """Counts the progress of a table from any thread; calls `progress` from one thread at a time."""

    def __init__(self, table: str, bytes_total: int, progress: Progress) -> None:
        self._lock = threading.Lock()
        self._last = TableProgress(table, 0, bytes_total)
        self._progress = progress

    def on_bytes(self, count: int) -> None:
        with self._lock:
            self._report(replace(self._last, bytes_read=self._last.bytes_read + count))

    def on_stored(self, rows: int, was_durable: bool) -> None:
        with self._lock:
            last = self._last
            resumed = last.resumed + int(was_durable)
            self._report(replace(last, chunks=last.chunks + 1, rows=last.rows + rows, resumed=resumed))

    def on_sealed(self) -> None:
        """Set the bytes read to the total: `on_bytes` does not count header lines."""
        with self._lock:
            self._report(replace(self._last, bytes_read=self._last.bytes_total, is_sealed=True))

    def _report(self, progress: TableProgress) -> None:
        self._last = progress
        self._progress(progress)


_END_ATTEMPTS = 3  # each sends the chunks that the attempt before found missing


@dataclass(frozen=True)
class UploadOptions:
    """`is_strict` makes the first bad row fatal; `progress` is called after every change."""

    is_strict: bool = False
    progress: Progress = lambda _: None
    chunk_rows: int = CHUNK_ROWS


_DEFAULT = UploadOptions()


@dataclass
class _Table:
    """A table during its upload."""

    name: str
    durable: dict[int, str]  # digest by number
    meter: _Meter
    chunks: int = 0
    rows: int = 0


def upload(calls: Calls, folder: InputFolder, run: str, options: UploadOptions = _DEFAULT) -> None:
    """Send a folder that `check_structure` has accepted; returns when every table is sealed.

    Raises RunOver if the run has failed or ended, InputError if the folder is not the one that the run began
    with, and BadRows, after cancelling the run, for a bad row in strict mode.
    """
    status = calls.status(run)
    if status.state in {RunState.FAILED, RunState.ENDED}:
        raise RunOver(f"run {run} is over: {status.error or status.state}")
    if status.state != RunState.OPEN:
        return  # all tables are sealed
    branch = Calls(calls.transport.branch())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch,
            heartbeat(lambda: branch.status(run)),
            ThreadPoolExecutor(os.cpu_count() or 1) as parsers,
            Senders(calls.transport.connections) as senders,
            ExitStack() as stack,
        ):
            stack.callback(branch.transport.abandon)  # before the threads are joined
            work = _Upload(branch, folder, run, options, parsers, senders, Path(scratch))
            for name in folder.tables:
                work.send_table(name, status)
    except BadRows:
        with suppress(KopitiamError):
            calls.cancel(run)
        raise


@dataclass(frozen=True)
class _Upload:
    calls: Calls
    folder: InputFolder
    run: str
    options: UploadOptions
    parsers: ThreadPoolExecutor
    senders: Senders
    scratch: Path

    def send_table(self, name: str, before: RunStatus) -> None:
        durable = {chunk.number: chunk.digest for chunk in self.calls.durable(self.run, name).chunks}
        total = sum(file.stat().st_size for file in self.folder.files[name])
        table = _Table(name, durable, _Meter(name, total, self.options.progress))
        with RejectedWriter(self.scratch / f"{name}.csv") as quarantine:
            self._send_rows(table, quarantine)
        if surplus := [number for number in durable if number >= table.chunks]:
            raise self._changed(name, min(surplus))
        end = End(chunks=table.chunks, rows=table.rows, rejected=quarantine.counts[name])
        known = before.tables.get(name)
        if known is not None and known.sealed:
            if (known.expected_chunks, known.expected_rows) != (end.chunks, end.rows):
                raise self._changed(name, end.chunks)
        else:
            if end.rejected:
                self._put_rejected(name, quarantine.path)
            self._end(table, end)
        table.meter.on_sealed()

    def _put_rejected(self, name: str, path: Path) -> None:
        parts = sum(1 for _ in rejected_parts(path))
        for part, data in enumerate(rejected_parts(path)):
            self.calls.put_rejected(self.run, name, data, part, parts)

    def _send_rows(self, table: _Table, quarantine: RejectedWriter) -> None:
        def reject(rejected: Rejected) -> None:
            quarantine.add(table.name, rejected)
            if self.options.is_strict:
                raise BadRows(f"bad row: {rejected.file}, line {rejected.line}: {rejected.reason}")

        def send(chunk: Chunk) -> None:
            table.chunks += 1
            table.rows += chunk.rows.num_rows
            self.senders.submit(partial(self._store, table, chunk))

        self._read(table.name, send, reject, table.meter.on_bytes)
        self.senders.wait()

    def _read(
        self,
        name: str,
        on_chunk: Callable[[Chunk], None],
        on_rejected: Callable[[Rejected], None] = lambda _: None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        chunks = read_chunks(
            self.folder,
            self.folder.tables[name],
            self.parsers,
            on_rejected,
            on_bytes,
            chunk_rows=self.options.chunk_rows,
        )
        with closing(chunks):  # type: ignore[type-var]  # a generator, declared as an iterator
            for chunk in chunks:
                on_chunk(chunk)

    def _store(self, table: _Table, chunk: Chunk) -> None:
        data = encode(chunk.table, chunk.rows)
        digest = table.durable.get(chunk.number)
        if digest is None:
            self._put(table.name, chunk.number, data)
        elif digest != hashlib.sha256(data).hexdigest():
            raise self._changed(table.name, chunk.number)
        table.meter.on_stored(chunk.rows.num_rows, was_durable=digest is not None)

    def _put(self, name: str, number: int, data: bytes) -> None:
        try:
            self.calls.put_chunk(self.run, name, number, data)
        except (ConflictError, TableSealed):
            raise self._changed(name, number) from None

    def _end(self, table: _Table, end: End) -> None:
        for _ in range(_END_ATTEMPTS):
            try:
                self.calls.end(self.run, table.name, end)
                return
            except IncompleteError as refusal:
                if not refusal.missing:
                    raise
                self._send_again(table.name, refusal.missing)
            except RunOver:
                self._require_sealed(table.name, end)
                return
        raise ServiceError(
            f"run {self.run}: {table.name} is still not complete after {_END_ATTEMPTS} attempts"
        )

    def _send_again(self, name: str, missing: tuple[Span, ...]) -> None:
        def send_if_missing(chunk: Chunk) -> None:
            if any(first <= chunk.number <= last for first, last in missing):
                self.senders.submit(lambda: self._put(name, chunk.number, encode(chunk.table, chunk.rows)))

        self._read(name, send_if_missing)
        self.senders.wait()

    def _require_sealed(self, name: str, end: End) -> None:
        """Accept a retried END that the gateway committed before the run was done; else raise RunOver."""
        status = self.calls.status(self.run)
        table = status.tables.get(name)
        if table is None or (table.sealed, table.expected_rows) != (True, end.rows):
            raise RunOver(f"run {self.run} is over: {status.error or status.state}")

    def _changed(self, name: str, number: int) -> InputError:
        return InputError(f"the folder has changed since run {self.run} began: {name} chunk {number} differs")
