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
from kopitiam.landing.layout import Home
from kopitiam.landing.writer import AlreadyWritten, keep_once
from kopitiam.registry.port import Registered, RegistryPort

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Intake:
    home: Home
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
            set_aside = rejected if finding.rejected else None
            size = accepted.stat().st_size
            new_files = self._name(run, table, number, accepted, set_aside)
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
            for file in new_files:
                file.unlink(missing_ok=True)
            raise
        crash_point("chunk.registered")
        told = {"run": run.run, "table": table, "chunk": number, "rows": finding.rows}
        _log.info("chunk %s", registered.outcome, extra=told)
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
        )
        with self._timed("check"):
            finding = self.examiners.examine(order)
        if finding.refusal is not None:
            self.metrics.chunks.labels(table, "refused").inc()
            raise Refusal(422, "unsound", f"{table} chunk {number}: {finding.refusal}")
        if finding.trouble is not None:
            raise Unavailable(finding.trouble)
        return finding

    def _name(self, run: Run, table: str, number: int, accepted: Path, set_aside: Path | None) -> list[Path]:
        """Files under their names for good; those that are new. The chunk goes first, so that only the
        body that gets the number leaves its bad rows beside it."""
        wanted = [(accepted, self.home.chunk(run.run, table, number % run.shards, number))]
        if set_aside:
            wanted.append((set_aside, self.home.rejected(run.run) / f"{table}-{number:05d}.csv"))
        with self._timed("sync"):
            return [path for file, path in wanted if self._store(file, path, run, table, number)]

    def _store(self, file: Path, path: Path, run: Run, table: str, number: int) -> bool:
        try:
            return keep_once(file, path)
        except AlreadyWritten:
            raise self._conflict(table, number) from None
        except FileNotFoundError:
            if (state := self.registry.get_run(run.run).state).is_over:  # whose folder went meanwhile
                raise RunOver(f"run {run.run} is {state}") from None
            raise

    def _acknowledge(
        self, registered: Registered, table: str, number: int, body: Body
    ) -> tuple[StoredChunk, bool]:
        if registered.outcome == "conflict":
            raise self._conflict(table, number)
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
