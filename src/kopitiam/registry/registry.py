"""The registry itself: each method is one transaction. What they promise is written in `port.py`."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from kopitiam.contracts.barriers import Snapshot
from kopitiam.contracts.batches import Attempt, Batch, Committed, Partial, Step
from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.contracts.identity import Identity
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.contracts.runs import (
    ChunkRecord,
    LogEntry,
    Run,
    RunState,
    TableState,
    new_run_id,
)
from kopitiam.contracts.stages import ByTable
from kopitiam.registry import (
    attempts,
    barriers,
    batches,
    chunks,
    clock,
    identity,
    leases,
    nodes,
    partials,
    readiness,
    results,
    runs,
    tables,
    volumes,
)
from kopitiam.registry.checks import want_batch, want_counts, want_table
from kopitiam.registry.deadlines import CALL_SECONDS, within
from kopitiam.registry.engine import SQLITE_FILE, connect_engine
from kopitiam.registry.migrations import upgrade
from kopitiam.registry.port import RegistryPort
from kopitiam.registry.records import (
    Ended,
    Fence,
    Lease,
    Opened,
    Published,
    Registered,
    RunAccount,
    Wanted,
    ranked_holder,
)
from kopitiam.registry.sqlite_files import require_sound, require_there
from kopitiam.registry.transactions import Transactions

T = TypeVar("T")


def open_registry(
    url: str,
    home: Path,
    now: Callable[[], float] | None = None,
    *,
    is_checked: bool = False,
    may_be_new: bool = False,
) -> "Registry":
    """The registry of the settings, its tables brought up to date.

    `now` takes the place of its own clock. A SQLite file that is missing where it was before is not made
    anew, unless `may_be_new`; if `is_checked`, a damaged one is refused.
    """
    if url == "sqlite":
        file = home / SQLITE_FILE
        if not may_be_new:
            require_there(file)
        if is_checked:
            require_sound(file)
    engine = connect_engine(url, home)
    upgrade(engine)
    Transactions(engine).write(clock.set_clock)
    return Registry(engine, now)


def connect_registry(url: str, home: Path) -> "Registry":
    """One that somebody else has opened, and brought up to date, before."""
    return Registry(connect_engine(url, home))


class Registry(RegistryPort):
    def __init__(self, engine: Engine, now: Callable[[], float] | None = None) -> None:
        self._engine = engine
        self._clock = clock.injected(now) if now else clock.clock_of(engine)
        self._transactions = Transactions(engine)
        self._read = self._transactions.read
        self._write = self._transactions.write

    def _write_fenced(self, fence: Fence | None, work: Callable[[Connection], T]) -> T:
        def guarded(connection: Connection) -> T:
            leases.guard(connection, fence)
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
        want_counts(other_shards=shards - 1)
        name, asked = new_run_id(), json.loads(json.dumps(questions))

        def opened(connection: Connection) -> Opened:
            now = self._clock(connection)
            wanted = Run(
                run=name,
                label=label,
                state=RunState.OPEN,
                questions=asked,
                owner=owner,
                shards=shards,
                created_at=now,
                lease_expires_at=now + lease_seconds,
            )
            return runs.open_run(connection, wanted, idempotency_key, lease_seconds, max_open_runs)

        return self._write(opened)

    def get_run(self, run: str) -> Run:
        return self._read(lambda c: runs.get_run(c, run))

    def list_runs(
        self,
        owner: str | None,
        limit: int,
        before: tuple[float, str] | None = None,
        *,
        states: tuple[RunState, ...] = (),
        search: str = "",
    ) -> list[Run]:
        return self._read(lambda c: runs.list_runs(c, Wanted(owner, states, search), limit, before))

    def count_listed(self, owner: str | None, *, states: tuple[RunState, ...] = (), search: str = "") -> int:
        return self._read(lambda c: runs.count_listed(c, Wanted(owner, states, search)))

    def most_shards(self) -> int:
        return self._read(runs.most_shards)

    def account(self, run: str) -> RunAccount:
        return self._read(lambda c: tables.account(c, run))

    def table_states(self, run: str) -> dict[str, TableState]:
        return self._read(lambda c: tables.table_states(c, run))

    def version(self, run: str) -> int:
        return self._read(lambda c: runs.version(c, run))

    def renew_lease(self, run: str, lease_seconds: float) -> None:
        self._write(lambda c: runs.renew_lease(c, run, self._clock(c) + lease_seconds))

    def renew_open_runs(self, fence: Fence | None = None) -> None:
        self._write_fenced(fence, lambda c: runs.renew_open_runs(c, self._clock(c)))

    def runs_in(self, *states: RunState) -> list[Run]:
        return self._read(lambda c: runs.runs_in(c, states))

    def count_runs(self, state: RunState) -> int:
        return self._read(lambda c: runs.count_runs(c, state))

    def expired_runs(self) -> list[Run]:
        return self._read(lambda c: runs.expired_runs(c, self._clock(c)))

    def move(self, run: str, to: RunState, error: str | None = None, fence: Fence | None = None) -> Run:
        return self._write_fenced(fence, lambda c: runs.move(c, run, to, self._clock(c), error))

    def force_end(
        self,
        run: str,
        reason: str,
        only_if_expired: bool = False,
        fence: Fence | None = None,
        as_of: float | None = None,
    ) -> bool:
        return self._write_fenced(
            fence, lambda c: runs.force_end(c, run, reason, self._clock(c), only_if_expired, as_of)
        )

    # -- chunks and their log

    def register_chunk(
        self,
        run: str,
        table: str,
        number: int,
        *,
        digest: str,
        rows: int,
        bytes: int,
        rejected: int,
        landed: str | None = None,
        is_beside: bool = False,
    ) -> Registered:
        want_table(table)
        want_counts(number=number, rows=rows, bytes=bytes, rejected=rejected)
        wanted = ChunkRecord(table, number, digest, rows, bytes, rejected, -1, -1, landed, is_beside)
        return self._write(lambda c: chunks.register(c, run, wanted, self._clock(c)))

    def chunks(self, run: str, table: str) -> list[ChunkRecord]:
        want_table(table)
        return self._read(lambda c: chunks.list_chunks(c, run, table))

    def end_table(self, run: str, table: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        want_table(table)
        want_counts(chunks=chunks, rows=rows, rejected=rejected)
        return self._write(
            lambda c: tables.end_table(c, run, table, (chunks, rows), rejected=rejected, now=self._clock(c))
        )

    def expectations(self, run: str) -> ByTable:
        return self._read(lambda c: volumes.expectations(c, run))

    def log_head(self, lane: int, after: int, max_chunks: int, max_bytes: int) -> int:
        return self._read(lambda c: chunks.log_head(c, lane, after, max_chunks, max_bytes))

    def read_span(self, lane: int, after: int, upto: int) -> list[LogEntry]:
        return self._read(lambda c: chunks.read_span(c, lane, after, upto))

    def last_sequence(self, lane: int) -> int:
        return self._read(lambda c: chunks.last_sequence(c, lane))

    # -- the stream

    def positions(self, lanes: Iterable[int]) -> dict[int, int]:
        wanted = sorted(set(lanes))
        return self._read(lambda c: batches.positions(c, wanted))

    def commit_batch(self, batch: Batch, fence: Fence | None = None) -> Committed:
        want_batch(batch)
        return self._write_fenced(fence, lambda c: batches.commit(c, batch, fence.name if fence else None))

    def progress(self, run: str) -> ByTable:
        return self._read(lambda c: volumes.progress(c, run))

    def partials(self, run: str) -> list[Partial]:
        return self._read(lambda c: partials.list_partials(c, run))

    def replace_partials(
        self, run: str, old: Iterable[str], new: Partial, fence: Fence | None = None
    ) -> bool:
        merged = frozenset(old)
        if not merged or new.run != run:
            raise ValueError(f"want partials of run {run} to replace, and a new one of the same run")
        return self._write_fenced(fence, lambda c: partials.replace(c, run, merged, new))

    def partial_paths(self, prefix: str) -> set[str]:
        return self._read(lambda c: partials.paths_under(c, prefix))

    # -- attempts

    def begin_attempt(self, attempt: str, step: Step, runs: Iterable[str], fence: Fence) -> None:
        names = frozenset(runs)
        self._write_fenced(
            fence, lambda c: attempts.begin(c, attempt, step, names, node=fence.name, now=self._clock(c))
        )

    def give_back_attempt(self, attempt: str) -> None:
        self._write(lambda c: attempts.give_back(c, attempt))

    def end_attempt_badly(self, attempt: str, reason: str) -> None:
        self._write(lambda c: attempts.end_badly(c, attempt, reason))

    def attempts(self, runs: Iterable[str], step: Step, node: str | None = None) -> dict[str, list[Attempt]]:
        names = frozenset(runs)
        return self._read(lambda c: attempts.list_attempts(c, names, step, node))

    # -- barriers

    def snapshots(self) -> list[Snapshot]:
        return self._read(barriers.snapshots)

    def snapshot(self, run: str) -> Snapshot:
        return self._read(lambda c: barriers.snapshot(c, runs.get_run(c, run)))

    def open_barrier(self, run: str, fence: Fence | None = None) -> bool:
        return self._write_fenced(fence, lambda c: barriers.open_barrier(c, run, self._clock(c)))

    def fail_if_wrong(self, run: str, fence: Fence | None = None) -> str | None:
        return self._write_fenced(fence, lambda c: barriers.fail_if_wrong(c, run, self._clock(c)))

    # -- answers

    def claim_final(self, run: str, claimant: Fence) -> bool:
        return self._write_fenced(claimant, lambda c: results.claim_final(c, run, claimant, self._clock(c)))

    def unclaim(self, run: str, claimant: Fence) -> None:
        self._write(lambda c: results.unclaim(c, run, claimant))

    def publish_results(
        self,
        run: str,
        attempt: str,
        figures: dict[str, Any],
        fence: Fence | None = None,
        digests: dict[str, str] | None = None,
    ) -> None:
        def publish(connection: Connection) -> None:
            results.publish(
                connection,
                run,
                attempt,
                figures,
                digests=digests or {},
                claimant=fence,
                now=self._clock(connection),
            )

        self._write_fenced(fence, publish)

    def results(self, run: str) -> Published | None:
        return self._read(lambda c: results.get_results(c, run))

    def publish_provisional(self, run: str, attempt: str, figures: dict[str, Any]) -> bool:
        return self._write(lambda c: results.publish_provisional(c, run, attempt, figures, self._clock(c)))

    def provisional(self, run: str) -> Published | None:
        return self._read(lambda c: results.get_provisional(c, run))

    # -- clean-up

    def finished_before(self, moment: float, with_chunks: bool = False) -> list[Run]:
        return self._read(lambda c: runs.finished_before(c, moment, with_chunks))

    def forget_chunks(self, run: str) -> None:
        self._write(lambda c: runs.forget_chunks(c, run))

    def forget_run(self, run: str) -> bool:
        return self._write(lambda c: runs.forget_run(c, run))

    # -- leases

    def acquire_lease(self, name: str, holder: str, ttl_seconds: float) -> int | None:
        return self._write(lambda c: leases.acquire(c, name, holder, ttl_seconds, self._clock(c)))

    def outrank(self, name: str, rank: int, holder: str, ttl_seconds: float) -> int | None:
        ranked = ranked_holder(rank, holder)
        return self._write(lambda c: leases.outrank(c, name, ranked, ttl_seconds, self._clock(c)))

    def enlist(self, name: str, holder: str, ttl_seconds: float) -> int:
        return self._write(lambda c: leases.enlist(c, name, holder, ttl_seconds, self._clock(c)))

    def renew(self, name: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
        fence = Fence(name, epoch, holder)
        return self._write(lambda c: leases.renew(c, fence, ttl_seconds, self._clock(c)))

    def holds(self, fence: Fence) -> bool:
        return self._read(lambda c: leases.holds(c, fence, self._clock(c)))

    def leases(self) -> dict[str, Lease]:
        return self._read(lambda c: leases.list_leases(c, self._clock(c)))

    def release(self, name: str, holder: str, epoch: int) -> bool:
        return self._write(lambda c: leases.release(c, Fence(name, epoch, holder), self._clock(c)))

    # -- nodes

    def report_node(self, node: NodeRecord, fence: Fence | None = None) -> bool:
        is_own = fence is not None and fence.name == node.name
        return self._write_fenced(fence, lambda c: nodes.report(c, node, self._clock(c), is_own=is_own))

    def nodes(self) -> list[NodeRecord]:
        return self._read(nodes.list_nodes)

    def forget_node(self, name: str, fence: Fence | None = None) -> None:
        self._write_fenced(fence, lambda c: nodes.forget(c, name))

    # -- time and health

    def now(self) -> float:
        return self._read(self._clock)

    def check(self) -> None:
        with within(CALL_SECONDS):
            written = self._write(readiness.write)
            is_there = self._read(readiness.read) >= written
        if not is_there:
            raise RegistryUnavailable("registry: what was written is not there to be read")

    # -- identity

    def identity(self) -> Identity:
        return self._read(identity.get_identity)

    def advance(self, beyond: int = 0) -> Identity:
        return self._write(lambda c: identity.advance(c, beyond))

    def wait_longer(self, unknown: Iterable[str], most_seconds: float) -> dict[str, float]:
        names = sorted(set(unknown))
        return self._write(lambda c: identity.wait_longer(c, names, most_seconds, self._clock(c)))

    def close(self) -> None:
        self._engine.dispose()
