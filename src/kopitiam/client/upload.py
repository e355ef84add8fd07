"""The upload of tables or files: sends the chunks that the gateway lacks, then END with the expected counts.

One thread reads chunks in order, a few others encode and send them; only a few chunks are in memory. The
client keeps no state between uploads: the same folder always gives the same chunks, and the gateway lists
those that it has, so any upload can be resumed.
"""

import hashlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from kopitiam.client.chunks import Chunk, read_chunks, rejected_parts
from kopitiam.client.export_files import ExportFile
from kopitiam.client.folder import InputFolder
from kopitiam.client.port import RunCalls
from kopitiam.client.refusals import ConflictError, IncompleteError
from kopitiam.client.senders import Senders, heartbeat
from kopitiam.contracts.api import End, RunStatus, TableStatus
from kopitiam.contracts.errors import BadRows, InputError, KopitiamError, RunOver, ServiceError, TableSealed
from kopitiam.contracts.runs import RunState, Span
from kopitiam.contracts.tables import CHUNK_ROWS, Rejected, Table
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
            last = self._last  # the total is an estimate if files are compressed
            self._report(replace(last, bytes_read=min(last.bytes_read + count, last.bytes_total)))

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


@dataclass(frozen=True)
class Part:
    """Rows that are numbered and ended together: a table of a run, or a file of a data set."""

    place: str  # in the path of its calls: `tables/users`, `files/…`
    name: str  # in messages
    table: Table
    files: tuple[ExportFile, ...]
    ended: tuple[int, int] | None = None  # chunks and rows, if it has had its END

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> InputFolder:
        """A folder with the files of this part alone."""
        name = self.table.name
        return InputFolder(Path(), {name: self.table}, {name: self.files})


def upload(calls: RunCalls, folder: InputFolder, run: str, options: UploadOptions = _DEFAULT) -> None:
    """Send a folder that `check_structure` has accepted; returns when every table is sealed.

    Raises RunOver if the run has failed or ended, InputError if the folder is not the one that the run began
    with, and BadRows, after cancelling the run, for a bad row in strict mode.
    """
    status = calls.status(run)
    require_accepting(status)
    if status.state != RunState.OPEN:
        return  # all tables are sealed
    parts = [
        Part(f"tables/{name}", name, table, folder.files[name], _figures(status.tables.get(name)))
        for name, table in folder.tables.items()
    ]
    send_parts(calls, run, parts, options)


def require_accepting(status: RunStatus) -> None:
    """Raise RunOver if the run has failed or ended."""
    if status.state in {RunState.FAILED, RunState.ENDED}:
        raise RunOver(f"run {status.run} is over: {status.error or status.state}")


def send_parts(calls: RunCalls, run: str, parts: Sequence[Part], options: UploadOptions = _DEFAULT) -> None:
    """Send all parts, each with its END. Raises as `upload`."""
    branch = calls.branch()
    totals = Counter[str]()
    for part in parts:
        totals[part.table.name] += part.size
    meters = {table: _Meter(table, total, options.progress) for table, total in totals.items()}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch,
            heartbeat(lambda: branch.status(run)),
            ThreadPoolExecutor(os.cpu_count() or 1) as parsers,
            Senders(calls.senders) as senders,
            ExitStack() as stack,
        ):
            stack.callback(branch.abandon)  # before the threads are joined
            work = _Upload(branch, run, options, parsers, senders, Path(scratch))
            for part, following in zip_longest(parts, parts[1:]):
                meter = meters[part.table.name]
                work.send(part, meter)
                if following is None or following.table.name != part.table.name:
                    meter.on_sealed()
    except BadRows:
        with suppress(KopitiamError):
            calls.cancel(run)
        raise


def _figures(table: TableStatus | None) -> tuple[int, int] | None:
    """The chunks and rows of a table that is sealed."""
    if table is None or not table.sealed:
        return None
    return table.expected_chunks or 0, table.expected_rows or 0


@dataclass
class _Sending:
    """A part during its upload."""

    part: Part
    durable: dict[int, str]  # digest by number
    meter: _Meter
    chunks: int = 0
    rows: int = 0


@dataclass(frozen=True)
class _Upload:
    calls: RunCalls
    run: str
    options: UploadOptions
    parsers: ThreadPoolExecutor
    senders: Senders
    scratch: Path

    def send(self, part: Part, meter: _Meter) -> None:
        durable = {chunk.number: chunk.digest for chunk in self.calls.durable(self.run, part.place).chunks}
        sending = _Sending(part, durable, meter)
        with RejectedWriter(self.scratch / f"{part.place.replace('/', '-')}.csv") as quarantine:
            self._send_rows(sending, quarantine)
        if surplus := [number for number in durable if number >= sending.chunks]:
            raise self._changed(part, min(surplus))
        end = End(chunks=sending.chunks, rows=sending.rows, rejected=quarantine.counts[part.table.name])
        if part.ended is not None:
            if part.ended != (end.chunks, end.rows):
                raise self._changed(part, end.chunks)
            return
        if end.rejected:
            self._put_rejected(part, quarantine.path)
        self._end(part, end)

    def _put_rejected(self, part: Part, path: Path) -> None:
        pieces = sum(1 for _ in rejected_parts(path))
        for piece, data in enumerate(rejected_parts(path)):
            self.calls.put_rejected(self.run, part.place, data, piece, pieces)

    def _send_rows(self, sending: _Sending, quarantine: RejectedWriter) -> None:
        def reject(rejected: Rejected) -> None:
            quarantine.add(sending.part.table.name, rejected)
            if self.options.is_strict:
                raise BadRows(f"bad row: {rejected.file}, line {rejected.line}: {rejected.reason}")

        def send(chunk: Chunk) -> None:
            sending.chunks += 1
            sending.rows += chunk.rows.num_rows
            self.senders.submit(partial(self._store, sending, chunk))

        self._read(sending.part, send, reject, sending.meter.on_bytes)
        self.senders.wait()

    def _read(
        self,
        part: Part,
        on_chunk: Callable[[Chunk], None],
        on_rejected: Callable[[Rejected], None] = lambda _: None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        chunks = read_chunks(
            part.folder,
            part.table,
            self.parsers,
            on_rejected,
            on_bytes,
            chunk_rows=self.options.chunk_rows,
        )
        with closing(chunks):  # type: ignore[type-var]  # a generator, declared as an iterator
            for chunk in chunks:
                on_chunk(chunk)

    def _store(self, sending: _Sending, chunk: Chunk) -> None:
        data = encode(chunk.table, chunk.rows)
        digest = sending.durable.get(chunk.number)
        if digest is None:
            self._put(sending.part, chunk.number, data)
        elif digest != hashlib.sha256(data).hexdigest():
            raise self._changed(sending.part, chunk.number)
        sending.meter.on_stored(chunk.rows.num_rows, was_durable=digest is not None)

    def _put(self, part: Part, number: int, data: bytes) -> None:
        try:
            self.calls.put_chunk(self.run, part.place, number, data)
        except (ConflictError, TableSealed):
            raise self._changed(part, number) from None

    def _end(self, part: Part, end: End) -> None:
        for _ in range(_END_ATTEMPTS):
            try:
                self.calls.end(self.run, part.place, end)
                return
            except IncompleteError as refusal:
                if not refusal.missing:
                    raise
                self._send_again(part, refusal.missing)
            except RunOver:
                self._require_sealed(part, end)
                return
        raise ServiceError(
            f"run {self.run}: {part.name} is still not complete after {_END_ATTEMPTS} attempts"
        )

    def _send_again(self, part: Part, missing: tuple[Span, ...]) -> None:
        def send_if_missing(chunk: Chunk) -> None:
            if any(first <= chunk.number <= last for first, last in missing):
                self.senders.submit(lambda: self._put(part, chunk.number, encode(chunk.table, chunk.rows)))

        self._read(part, send_if_missing)
        self.senders.wait()

    def _require_sealed(self, part: Part, end: End) -> None:
        """Accept a retried END that the gateway committed before the run was done; else raise RunOver."""
        status = self.calls.status(self.run)
        if _figures(status.tables.get(part.name)) != (end.chunks, end.rows):
            raise RunOver(f"run {self.run} is over: {status.error or status.state}")

    def _changed(self, part: Part, number: int) -> InputError:
        return InputError(
            f"the folder has changed since run {self.run} began: {part.name} chunk {number} differs"
        )
