"""A folder on its way to a gateway: only what is not durable there is sent, and END says how much that makes.

Chunks are read in order by one thread, encoded and sent by a few others, and never more than a few are in
memory. Nothing is remembered between two uploads: the cuts depend on the folder only, so that a second
upload of the same folder makes the same chunks, and the gateway knows which of them it has.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kopitiam.client.calls import Calls
from kopitiam.client.chunks import Chunk, read_chunks
from kopitiam.client.folder import InputFolder
from kopitiam.client.heartbeat import heartbeat
from kopitiam.client.refusals import ConflictError, IncompleteError
from kopitiam.client.senders import Senders
from kopitiam.client.set_aside import parts_of
from kopitiam.client.upload_progress import Meter, Progress
from kopitiam.contracts.api import End, RunStatus
from kopitiam.contracts.errors import BadRows, InputError, KopitiamError, RunOver, ServiceError, TableSealed
from kopitiam.contracts.runs import RunState, Span
from kopitiam.contracts.tables import CHUNK_ROWS, Rejected
from kopitiam.landing.rejected import Quarantine
from kopitiam.landing.writer import encode

_ROUNDS = 3  # of sending what END finds missing


@dataclass(frozen=True)
class Sending:
    """How an upload goes about it."""

    is_strict: bool = False
    progress: Progress = lambda _: None
    chunk_rows: int = CHUNK_ROWS


_PLAIN = Sending()


@dataclass
class _Table:
    """What is known of a table while it is sent."""

    name: str
    durable: dict[int, str]  # digest by number
    meter: Meter
    chunks: int = 0
    rows: int = 0


def upload(calls: Calls, folder: InputFolder, run: str, sending: Sending = _PLAIN) -> None:
    """Sends a folder whose structure has been checked; returns when every table is sealed."""
    status = calls.status(run)
    if status.state in {RunState.FAILED, RunState.ENDED}:
        raise RunOver(f"run {run} is over: {status.error or status.state}")
    if status.state != RunState.OPEN:
        return  # all its tables have had their END
    branch = Calls(calls.transport.branch())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kopitiam-") as scratch,
            heartbeat(lambda: branch.status(run)),
            ThreadPoolExecutor(os.cpu_count() or 1) as parsers,
            Senders(calls.transport.connections) as senders,
            closing(_Abandoning(branch)),
        ):
            work = _Upload(branch, folder, run, sending, parsers, senders, Path(scratch))
            for name in folder.tables:
                work.send(name, status)
    except BadRows:
        with suppress(KopitiamError):
            calls.cancel(run)
        raise


@dataclass(frozen=True)
class _Abandoning:
    calls: Calls

    def close(self) -> None:
        self.calls.transport.abandon()


@dataclass(frozen=True)
class _Upload:
    calls: Calls
    folder: InputFolder
    run: str
    sending: Sending
    parsers: ThreadPoolExecutor
    senders: Senders
    scratch: Path

    def send(self, name: str, before: RunStatus) -> None:
        durable = {chunk.number: chunk.digest for chunk in self.calls.durable(self.run, name).chunks}
        total = sum(file.stat().st_size for file in self.folder.files[name])
        table = _Table(name, durable, Meter(name, total, self.sending.progress))
        with Quarantine(self.scratch / f"{name}.csv") as quarantine:
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
        parts = sum(1 for _ in parts_of(path))
        for part, data in enumerate(parts_of(path)):
            self.calls.put_rejected(self.run, name, data, part, parts)

    def _send_rows(self, table: _Table, quarantine: Quarantine) -> None:
        def set_aside(rejected: Rejected) -> None:
            quarantine.add(table.name, rejected)
            if self.sending.is_strict:
                raise BadRows(f"a bad row: {rejected.file}, line {rejected.line}: {rejected.reason}")

        def count(chunk: Chunk) -> None:
            table.chunks += 1
            table.rows += chunk.rows.num_rows
            self.senders.hand(partial(self._store, table, chunk))

        self._read(table.name, count, set_aside, table.meter.on_bytes)
        self.senders.finish()

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
            chunk_rows=self.sending.chunk_rows,
        )
        with closing(chunks):  # type: ignore[type-var]  # a generator, though it is declared an iterator
            for chunk in chunks:
                on_chunk(chunk)

    def _store(self, table: _Table, chunk: Chunk) -> None:
        data = encode(chunk.table, chunk.rows)
        digest = hashlib.sha256(data).hexdigest()
        is_there = chunk.number in table.durable
        if is_there and table.durable[chunk.number] != digest:
            raise self._changed(table.name, chunk.number)
        if not is_there:
            self._put(table.name, chunk.number, data)
        table.meter.on_stored(chunk.rows.num_rows, was_there=is_there)

    def _put(self, name: str, number: int, data: bytes) -> None:
        try:
            self.calls.put_chunk(self.run, name, number, data)
        except (ConflictError, TableSealed):
            raise self._changed(name, number) from None

    def _end(self, table: _Table, end: End) -> None:
        for _ in range(_ROUNDS):
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
        raise ServiceError(f"run {self.run}: {table.name} is still not complete after {_ROUNDS} rounds")

    def _send_again(self, name: str, missing: tuple[Span, ...]) -> None:
        def pick(chunk: Chunk) -> None:
            if any(first <= chunk.number <= last for first, last in missing):
                self.senders.hand(lambda: self._put(name, chunk.number, encode(chunk.table, chunk.rows)))

        self._read(name, pick)
        self.senders.finish()

    def _require_sealed(self, name: str, end: End) -> None:
        """An END whose answer was lost may be repeated after the run is done; then all is well."""
        status = self.calls.status(self.run)
        table = status.tables.get(name)
        if table is None or (table.sealed, table.expected_rows) != (True, end.rows):
            raise RunOver(f"run {self.run} is over: {status.error or status.state}")

    def _changed(self, name: str, number: int) -> InputError:
        return InputError(f"the folder has changed since run {self.run} began: {name} chunk {number} differs")
