"""A chunk's way from received to acknowledged: checked, synced, named, registered, in that order."""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.api import CSV, StoredChunk
from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.crash_points import crash_point
from kopitiam.contracts.errors import RunError, RunOver, Unavailable
from kopitiam.contracts.runs import Run
from kopitiam.gateway.bodies import Body
from kopitiam.gateway.examination import Finding, Order
from kopitiam.gateway.examiners import Examiners
from kopitiam.gateway.metrics import Metrics
from kopitiam.gateway.problems import Refusal
from kopitiam.landing.layout import KEYS
from kopitiam.registry.port import Registered, RegistryPort
from kopitiam.storage.port import AlreadyWritten, Key, StoragePort

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Intake:
    storage: StoragePort
    registry: RegistryPort
    examiners: Examiners
    metrics: Metrics
    limits: GatewaySection

    def accept(self, run: Run, table: str, number: int, body: Body) -> tuple[StoredChunk, bool]:
        """The chunk, and whether it is new; when this returns, it is durable."""
        crash_point("chunk.received")
        parquet, rejected = body.path.with_suffix(".parquet"), body.path.with_suffix(".rejected")
        try:
            finding = self._check(table, number, body, parquet, rejected)
            crash_point("chunk.checked")
            accepted = parquet if body.media_type == CSV else body.path
            files = [accepted, rejected] if finding.rejected else [accepted]
            size = accepted.stat().st_size
            new = self._keep(run, table, number, body.digest, files)
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
                )
        except RunError:  # no place for it: sealed or over meanwhile
            self._drop(new)
            raise
        crash_point("chunk.registered")
        told = {"run": run.run, "table": table, "chunk": number, "rows": finding.rows}
        _log.info("chunk %s", registered.outcome, extra=told)
        if registered.outcome == "conflict":  # a number belongs to one body for good
            self._drop(new)
            raise self._conflict(table, number)
        return self._acknowledge(registered, table, number, body)

    def _check(self, table: str, number: int, body: Body, parquet: Path, rejected: Path) -> Finding:
        limits = self.limits
        order = Order(
            str(body.path),
            body.media_type,
            table,
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

    def _keep(self, run: Run, table: str, number: int, digest: str, files: list[Path]) -> list[Key]:
        """Files under their names for good; those that are new. The chunk goes first, so that only the
        body that gets the number leaves its bad rows beside it."""
        chunk = KEYS.chunk(run.run, table, number % run.shards, number)
        bad_rows = KEYS.rejected(run.run) / f"{table}-{number:05d}.csv"
        try:
            with self._timed("sync"):
                return [
                    self.storage.name_of(key, digest)
                    for file, key in zip(files, (chunk, bad_rows), strict=False)
                    if self.storage.keep_once(file, key, digest)
                ]
        except AlreadyWritten:
            raise self._conflict(table, number) from None
        except FileNotFoundError:
            if (state := self.registry.get_run(run.run).state).is_over:  # whose folder went meanwhile
                raise RunOver(f"run {run.run} is {state}") from None
            raise

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
