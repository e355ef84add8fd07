"""The upload of a chunk: received as a file, checked, stored, registered, acknowledged, in that order.

The checks themselves are in `examination`; the HTTP calls are in `routes.chunks`.
"""

import base64
import binascii
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from kopitiam.contracts.api import CSV, PARQUET, StoredChunk
from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.data_sets import DataFile, shard_of_file
from kopitiam.contracts.errors import RunError, RunOver, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, Run
from kopitiam.contracts.tables import Table
from kopitiam.gateway.examination import Examiners, Finding, Order
from kopitiam.gateway.observability import Metrics
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.rates import BodyPace
from kopitiam.landing.chunks import (
    bad_rows,
    chunk_key,
    file_digest,
    named,
    origin_of,
    rejected_key,
)
from kopitiam.registry.records import Registered
from kopitiam.storage.port import AlreadyWritten, Key, StoragePort
from kopitiam.system.crash_points import crash_point

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Body:
    """The body of a request, received as a file."""

    path: Path
    media_type: str
    size: int
    digest: str
    file: str = ""  # for CSV: the file that the chunk was cut from
    line: int | None = None  # the line of its first row in that file


def media_type(request: Request) -> str:
    """Return the media type of the body. Raises Refusal (415) if it is neither Parquet nor CSV."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared not in {PARQUET, CSV}:
        message = f"Content-Type {declared or 'is missing'}: expected {PARQUET} or {CSV}"
        raise Refusal(415, "media_type", message)
    return declared


async def receive(request: Request, path: Path, max_bytes: int, pace: BodyPace) -> Body:
    """Stream the body to a new file. Raises Refusal if it is late, cut off, too large or fails its digest."""
    body_type = media_type(request)
    expected = content_digest(request)
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise _too_large(max_bytes)
    sha, size = hashlib.sha256(), 0
    try:
        with path.open("xb") as file:
            async with pace.enforced():
                async for piece in request.stream():
                    size += len(piece)
                    if size > max_bytes:
                        raise _too_large(max_bytes)
                    sha.update(piece)
                    file.write(piece)
                    pace.add(len(piece))
    except ClientDisconnect:
        raise Refusal(400, "truncated", "the connection broke inside the body") from None
    if expected is not None and expected != sha.digest():
        raise Refusal(422, "digest", "the body does not match its Content-Digest")
    return Body(path, body_type, size, sha.hexdigest())


def content_digest(request: Request) -> bytes | None:
    """Return the SHA-256 of the header Content-Digest (RFC 9530), which may list other digests too; None
    without the header. Raises Refusal (422) if the header has no SHA-256."""
    header = request.headers.get("content-digest")
    if header is None:
        return None
    match = re.search(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):", header)
    try:
        digest = base64.b64decode(match.group(1), validate=True) if match else b""
    except binascii.Error:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise Refusal(422, "digest", "Content-Digest: expected sha-256=:<base64>:")
    return digest


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(413, "too_large", f"more than {max_bytes:,} bytes; send smaller chunks")


@dataclass(frozen=True)
class Target:
    """What a chunk belongs to: a table of a run, or a file that the run sends to a data set.

    `form` is the table with the columns that a body must have.
    """

    run: Run
    form: Table
    file: DataFile | None = None

    @property
    def owner(self) -> str:
        """The id under which chunks are stored."""
        return self.file.file if self.file else self.run.run

    @property
    def name(self) -> str:
        return self.file.path if self.file else self.form.name

    def keys(self, number: int) -> tuple[Key, Key]:
        """The plain names of the chunk and of its rejected rows."""
        shards = self.run.shards
        shard = shard_of_file(self.owner, number, shards) if self.file else number % shards
        table = self.form.name
        return KEYS.chunk(self.owner, table, shard, number), bad_rows(self.owner, table, number)


@dataclass(frozen=True)
class StoredFiles:
    """The files of a body in storage: under the plain names, or beside another body with the plain names."""

    keys: list[Key]
    new: list[Key]  # keys that did not exist before
    is_beside: bool


@dataclass(frozen=True)
class ChunkUploads:
    """Checks, stores and registers chunks. Safe to call again with the same chunk, from any gateway."""

    storage: StoragePort
    registry: "Registry"
    examiners: Examiners
    metrics: Metrics
    limits: GatewaySection

    def accept(self, target: Target, number: int, body: Body) -> tuple[StoredChunk, bool]:
        """Return the chunk and whether it is new; it is durable when this returns.

        Raises Refusal (422 unsound, 409 if the number has other bytes), RunError, or Unavailable.
        """
        crash_point("chunk.received")
        run, table = target.run, target.form.name
        parquet, rejected = body.path.with_suffix(".parquet"), body.path.with_suffix(".rejected")
        try:
            finding = self._check(target, number, body, parquet, rejected)
            crash_point("chunk.checked")
            accepted = parquet if body.media_type == CSV else body.path
            files = [accepted, rejected] if finding.rejected else [accepted]
            size = accepted.stat().st_size
            landed = body.digest if accepted is body.path else file_digest(accepted)
            stored = self._store(target, number, body.digest, files)
        finally:
            for leftover in (parquet, rejected):
                leftover.unlink(missing_ok=True)
        crash_point("chunk.durable")
        try:
            with self._timed("register"):
                registered = self._register(
                    target,
                    number,
                    digest=body.digest,
                    rows=finding.rows,
                    bytes=size,
                    rejected=finding.rejected,
                    landed=landed,
                    is_beside=stored.is_beside,
                )
        except RunError:  # the table was sealed or the run ended meanwhile
            self._remove(stored.new)
            raise
        crash_point("chunk.registered")
        fields = {"run": run.run, "table": table, "chunk": number, "rows": finding.rows}
        _log.info("chunk %s", registered.outcome, extra=fields)
        self._remove_unregistered(run.run, registered.chunk, stored)
        if registered.outcome == "conflict":  # the first registered body keeps the number
            raise self._conflict(target, number)
        return self._acknowledge(registered, table, number, body)

    def _register(self, target: Target, number: int, **figures: Any) -> Registered:
        if target.file is None:
            return self.registry.register_chunk(target.run.run, target.form.name, number, **figures)
        return self.registry.register_file_chunk(target.run.run, target.file.file, number, **figures)

    def _check(self, target: Target, number: int, body: Body, parquet: Path, rejected: Path) -> Finding:
        limits, table = self.limits, target.form.name
        order = Order(
            str(body.path),
            body.media_type,
            table,
            [column.name for column in target.form.columns],
            str(parquet),
            str(rejected),
            limits.max_chunk_bytes,
            limits.max_chunk_rows,
            body.file,
            body.line,
        )
        with self._timed("check"):
            finding = self.examiners.examine(order)
        if finding.refusal is not None:
            self.metrics.chunks.labels(table, "refused").inc()
            raise Refusal(422, "unsound", f"{target.name} chunk {number}: {finding.refusal}")
        if finding.failure is not None:
            raise Unavailable(finding.failure)
        return finding

    def _store(self, target: Target, number: int, digest: str, files: list[Path]) -> StoredFiles:
        """Write the files under their final names. Another body with these names may be an orphan of a crash
        before registration: then this body is stored beside it, and the registry decides which counts."""
        run, keys = target.run, target.keys(number)
        try:
            with self._timed("sync"):
                try:
                    return self._write(files, keys, digest, is_beside=False)
                except AlreadyWritten:
                    return self._write(files, keys, digest, is_beside=True)
        except FileNotFoundError:
            if (state := self.registry.get_run(run.run).state).is_over:  # its folder was removed meanwhile
                raise RunOver(f"run {run.run} is {state}") from None
            raise

    def _write(
        self, files: list[Path], keys: tuple[Key, ...], digest: str, *, is_beside: bool
    ) -> StoredFiles:
        """Write the chunk first: rejected rows never exist without their chunk."""
        names = [named(self.storage, key, digest, is_beside) for key in keys[: len(files)]]
        targets = names if is_beside else keys
        new = [
            name
            for file, key, name in zip(files, targets, names, strict=False)
            if self.storage.keep_once(file, key, digest)
        ]
        return StoredFiles(names, new, is_beside)

    def _remove_unregistered(self, run: str, chunk: ChunkRecord, stored: StoredFiles) -> None:
        """Remove the files of this body, and of a body that has the plain names, unless they are registered.

        A registration never changes, so none of these files can be registered later. Orphans stored beside
        are removed when their body is sent again, or with the run.
        """
        registered = {
            chunk_key(self.storage, run, chunk),
            rejected_key(self.storage, run, chunk),
        }
        place = origin_of(run, chunk)
        plain = (
            KEYS.chunk(place.file, chunk.table, place.shard, place.number),
            bad_rows(place.file, chunk.table, place.number),
        )
        self._remove([key for key in stored.keys if key not in registered])
        if chunk.is_beside:
            self._remove([key for key in plain if key not in registered])

    def _remove(self, keys: list[Key]) -> None:
        for key in keys:
            self.storage.remove(key)

    def _acknowledge(
        self, registered: Registered, table: str, number: int, body: Body
    ) -> tuple[StoredChunk, bool]:
        self.metrics.chunks.labels(table, registered.outcome).inc()
        chunk = registered.chunk
        is_new = registered.outcome == "stored"
        if is_new:
            self.metrics.bytes.labels(table).inc(body.size)
            self.metrics.rows.labels(table).inc(chunk.rows)
            self.metrics.rejected.labels(table).inc(chunk.rejected)
        stored = StoredChunk(
            table=table, number=number, rows=chunk.rows, rejected=chunk.rejected, digest=chunk.digest
        )
        return stored, is_new

    def _conflict(self, target: Target, number: int) -> Refusal:
        self.metrics.chunks.labels(target.form.name, "conflict").inc()
        return Refusal(409, "conflict", f"{target.name} chunk {number} is already stored with other bytes")

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.metrics.seconds.labels(step).observe(time.perf_counter() - begun)
