"""A chunk's way from received to acknowledged: checked, synced, named, registered, in that order."""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.api import CSV, StoredChunk
from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import RunError, RunOver, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, Run
from kopitiam.contracts.tables import Table
from kopitiam.gateway.bodies import Body
from kopitiam.gateway.examination import Finding, Order
from kopitiam.gateway.examiners import Examiners
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.problems import Refusal
from kopitiam.landing.chunks import bad_rows, chunk_key, file_digest, named, rejected_key
from kopitiam.registry.port import Registered, RegistryPort
from kopitiam.storage.port import AlreadyWritten, Key, StoragePort
from kopitiam.system.crash_points import crash_point

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """Names of the files of a body: the plain ones, or others beside another body that has those."""

    names: list[Key]
    new: list[Key]  # those that were not there before
    is_beside: bool


@dataclass(frozen=True)
class Intake:
    storage: StoragePort
    registry: RegistryPort
    examiners: Examiners
    metrics: Metrics
    limits: GatewaySection

    def accept(self, run: Run, form: Table, number: int, body: Body) -> tuple[StoredChunk, bool]:
        """The chunk, and whether it is new; when this returns, it is durable. `form` is the normal form that
        the run wants of its table."""
        crash_point("chunk.received")
        table = form.name
        parquet, rejected = body.path.with_suffix(".parquet"), body.path.with_suffix(".rejected")
        try:
            finding = self._check(form, number, body, parquet, rejected)
            crash_point("chunk.checked")
            accepted = parquet if body.media_type == CSV else body.path
            files = [accepted, rejected] if finding.rejected else [accepted]
            size = accepted.stat().st_size
            landed = body.digest if accepted is body.path else file_digest(accepted)
            kept = self._keep(run, table, number, body.digest, files)
        finally:
            for leftover in (parquet, rejected):
                leftover.unlink(missing_ok=True)
        crash_point("chunk.durable")
        try:
            with self._timed("register"):
                registered = self.registry.register_chunk(
                    run.run,
                    table,
                    number,
                    digest=body.digest,
                    rows=finding.rows,
                    bytes=size,
                    rejected=finding.rejected,
                    landed=landed,
                    is_beside=kept.is_beside,
                )
        except RunError:  # no place for it: sealed or over meanwhile
            self._drop(kept.new)
            raise
        crash_point("chunk.registered")
        told = {"run": run.run, "table": table, "chunk": number, "rows": finding.rows}
        _log.info("chunk %s", registered.outcome, extra=told)
        self._settle(run.run, registered.chunk, kept)
        if registered.outcome == "conflict":  # a number belongs to one body for good
            raise self._conflict(table, number)
        return self._acknowledge(registered, table, number, body)

    def _check(self, form: Table, number: int, body: Body, parquet: Path, rejected: Path) -> Finding:
        limits, table = self.limits, form.name
        order = Order(
            str(body.path),
            body.media_type,
            table,
            [column.name for column in form.columns],
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
            raise Refusal(422, "unsound", f"{table} chunk {number}: {finding.refusal}")
        if finding.trouble is not None:
            raise Unavailable(finding.trouble)
        return finding

    def _keep(self, run: Run, table: str, number: int, digest: str, files: list[Path]) -> Kept:
        """Files under their names for good. A name that another body has says nothing yet: that body may have
        been cut short before it was registered. The registry decides which of them counts."""
        keys = (KEYS.chunk(run.run, table, number % run.shards, number), bad_rows(run.run, table, number))
        try:
            with self._timed("sync"):
                try:
                    return self._written(files, keys, digest, is_beside=False)
                except AlreadyWritten:
                    return self._written(files, keys, digest, is_beside=True)
        except FileNotFoundError:
            if (state := self.registry.get_run(run.run).state).is_over:  # whose folder went meanwhile
                raise RunOver(f"run {run.run} is {state}") from None
            raise

    def _written(self, files: list[Path], keys: tuple[Key, ...], digest: str, *, is_beside: bool) -> Kept:
        """The chunk goes first: whoever finds bad rows there finds their chunk too."""
        names = [named(self.storage, key, digest, is_beside) for key in keys[: len(files)]]
        wanted = names if is_beside else keys
        new = [
            name
            for file, key, name in zip(files, wanted, names, strict=False)
            if self.storage.keep_once(file, key, digest)
        ]
        return Kept(names, new, is_beside)

    def _settle(self, run: str, chunk: ChunkRecord, kept: Kept) -> None:
        """Removes the files of this body, and of one that has the plain names, unless they are registered.

        What is registered under a number stays registered, so none of these files can come to count. The file
        of an orphan that has a name of its own is removed when its body is sent again, or with the run.
        """
        counting = {
            chunk_key(self.storage, run, chunk, chunk.digest, chunk.is_beside),
            rejected_key(self.storage, run, chunk),
        }
        plain = (
            KEYS.chunk(run, chunk.table, chunk.shard, chunk.number),
            bad_rows(run, chunk.table, chunk.number),
        )
        self._drop([key for key in kept.names if key not in counting])
        if chunk.is_beside:
            self._drop([key for key in plain if key not in counting])

    def _drop(self, keys: list[Key]) -> None:
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

    def _conflict(self, table: str, number: int) -> Refusal:
        self.metrics.chunks.labels(table, "conflict").inc()
        return Refusal(409, "conflict", f"{table} chunk {number} is there already with other bytes")

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.metrics.seconds.labels(step).observe(time.perf_counter() - begun)
