"""The registry itself: each method is one transaction. What they promise is written in `port.py`."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, select

from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.contracts.runs import (
    ChunkRecord,
    LogEntry,
    Run,
    RunFigures,
    RunState,
    Span,
    TableState,
    new_run_id,
)
from kopitiam.contracts.tables import TABLES
from kopitiam.registry import chunks, leases, results, runs, tables
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.migrations import upgrade
from kopitiam.registry.port import Ended, Fence, Opened, Published, Registered, RegistryPort
from kopitiam.registry.schema import readiness
from kopitiam.registry.transactions import Transactions, upsert

T = TypeVar("T")
LARGEST = 2**63 - 1  # what the database can count


def open_registry(url: str, home: Path, now: Callable[[], float] = time.time) -> "Registry":
    """The registry of the settings, its tables brought up to date."""
    engine = connect_engine(url, home)
    upgrade(engine)
    return Registry(engine, now)


class Registry(RegistryPort):
    def __init__(self, engine: Engine, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now = now
        self._transactions = Transactions(engine)
        self._read = self._transactions.read
        self._write = self._transactions.write

    def _write_fenced(self, fence: Fence | None, work: Callable[[Connection], T]) -> T:
        def guarded(connection: Connection) -> T:
            leases.guard(connection, fence, self._now())
            return work(connection)

        return self._write(guarded)

    # -- runs

    def open_run(
        self,
        questions: dict[str, Any],
        label: str,
        owner: str,
        *,
        idempotency_key: str | None,
        lease_seconds: float,
        shards: int,
        max_open_runs: int | None = None,
    ) -> Opened:
        _want_counts(other_shards=shards - 1)
        now = self._now()
        wanted = Run(
            run=new_run_id(),
            label=label,
            state=RunState.OPEN,
            questions=json.loads(json.dumps(questions)),
            owner=owner,
            shards=shards,
            created_at=now,
            lease_expires_at=now + lease_seconds,
        )
        return self._write(lambda c: runs.open_run(c, wanted, idempotency_key, lease_seconds, max_open_runs))

    def get_run(self, run: str) -> Run:
        return self._read(lambda c: runs.get_run(c, run))

    def list_runs(self, owner: str | None, limit: int, before: tuple[float, str] | None = None) -> list[Run]:
        return self._read(lambda c: runs.list_runs(c, owner, limit, before))

    def figures(self, run: str) -> RunFigures:
        return self._read(lambda c: tables.figures(c, run))

    def table_states(self, run: str) -> dict[str, TableState]:
        return self._read(lambda c: tables.table_states(c, run))

    def version(self, run: str) -> int:
        return self._read(lambda c: runs.version(c, run))

    def renew_lease(self, run: str, lease_seconds: float) -> None:
        self._write(lambda c: runs.renew_lease(c, run, self._now() + lease_seconds))

    def runs_in(self, *states: RunState) -> list[Run]:
        return self._read(lambda c: runs.runs_in(c, states))

    def count_runs(self, state: RunState) -> int:
        return self._read(lambda c: runs.count_runs(c, state))

    def expired_runs(self) -> list[Run]:
        return self._read(lambda c: runs.expired_runs(c, self._now()))

    def move(self, run: str, to: RunState, error: str | None = None, fence: Fence | None = None) -> Run:
        return self._write_fenced(fence, lambda c: runs.move(c, run, to, self._now(), error))

    def force_end(
        self, run: str, reason: str, only_if_expired: bool = False, fence: Fence | None = None
    ) -> bool:
        return self._write_fenced(
            fence, lambda c: runs.force_end(c, run, reason, self._now(), only_if_expired)
        )

    # -- chunks and their log

    def register_chunk(
        self, run: str, table: str, number: int, *, digest: str, rows: int, bytes: int, rejected: int
    ) -> Registered:
        _want_table(table)
        _want_counts(number=number, rows=rows, bytes=bytes, rejected=rejected)
        wanted = ChunkRecord(table, number, digest, rows, bytes, rejected, shard=-1, sequence=-1)
        return self._write(lambda c: chunks.register(c, run, wanted, self._now()))

    def chunks(self, run: str, table: str) -> list[ChunkRecord]:
        _want_table(table)
        return self._read(lambda c: chunks.list_chunks(c, run, table))

    def durable_numbers(self, run: str, table: str) -> tuple[Span, ...]:
        _want_table(table)
        return self._read(lambda c: chunks.durable_numbers(c, run, table))

    def end_table(self, run: str, table: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        _want_table(table)
        _want_counts(chunks=chunks, rows=rows, rejected=rejected)
        return self._write(
            lambda c: tables.end_table(c, run, table, (chunks, rows), rejected=rejected, now=self._now())
        )

    def expectations(self, run: str) -> dict[str, dict[int, tuple[int, int]]]:
        return self._read(lambda c: tables.expectations(c, run))

    def read_log(self, shard: int, after: int, max_chunks: int, max_bytes: int) -> list[LogEntry]:
        return self._read(lambda c: chunks.read_log(c, shard, after, max_chunks, max_bytes))

    def last_sequence(self, shard: int) -> int:
        return self._read(lambda c: chunks.last_sequence(c, shard))

    # -- answers

    def claim_final(self, run: str, holder: str, fence: Fence | None = None) -> bool:
        return self._write_fenced(fence, lambda c: results.claim_final(c, run, holder))

    def publish_results(
        self, run: str, attempt: str, figures: dict[str, Any], fence: Fence | None = None
    ) -> None:
        self._write_fenced(fence, lambda c: results.publish(c, run, attempt, figures, self._now()))

    def results(self, run: str) -> Published | None:
        return self._read(lambda c: results.get_results(c, run))

    # -- clean-up

    def finished_before(self, moment: float) -> list[Run]:
        return self._read(lambda c: runs.finished_before(c, moment))

    def forget_chunks(self, run: str) -> None:
        self._write(lambda c: runs.forget_chunks(c, run))

    def forget_run(self, run: str) -> bool:
        return self._write(lambda c: runs.forget_run(c, run))

    # -- leases

    def acquire_lease(self, name: str, holder: str, ttl_seconds: float) -> int | None:
        return self._write(lambda c: leases.acquire(c, name, holder, ttl_seconds, self._now()))

    def renew(self, name: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
        return self._write(lambda c: leases.renew(c, Fence(name, epoch), holder, ttl_seconds, self._now()))

    def holds(self, name: str, epoch: int) -> bool:
        return self._read(lambda c: leases.holds(c, Fence(name, epoch), self._now()))

    def release(self, name: str, holder: str, epoch: int) -> bool:
        return self._write(lambda c: leases.release(c, Fence(name, epoch), holder, self._now()))

    # -- health

    def check(self) -> None:
        written = self._write(_write_readiness)
        if self._read(_read_readiness) < written:
            raise RegistryUnavailable("registry: what was written is not there to be read")

    def close(self) -> None:
        self._engine.dispose()


def _write_readiness(connection: Connection) -> int:
    writing = upsert(connection, readiness).values(name="registry", checks=1)
    checks: int = connection.execute(
        writing.on_conflict_do_update(
            index_elements=[readiness.c.name], set_={"checks": readiness.c.checks + 1}
        ).returning(readiness.c.checks)
    ).scalar_one()
    return checks


def _read_readiness(connection: Connection) -> int:
    return connection.scalar(select(readiness.c.checks)) or 0


def _want_table(table: str) -> None:
    if table not in TABLES:
        raise ValueError(f"no table {table!r}")


def _want_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not 0 <= count <= LARGEST:
            raise ValueError(f"{name} {count}: want 0 to {LARGEST}")
