"""How a transaction of the registry runs: begun, retried where that is safe, bounded in time, fenced.

Database errors are translated here; nothing else in the registry catches them. The transactions themselves
are the methods of the mixins of `Registry` (`runs.py`, `chunks.py` …).
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, and_, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from kopitiam.contracts.errors import RegistryUnavailable, StaleEpoch
from kopitiam.registry.clock import clock_of, injected
from kopitiam.registry.records import Fence
from kopitiam.registry.schema import leases

T = TypeVar("T")

CALL_SECONDS = 15.0  # for a call with all its retries
ATTEMPTS = 5
RETRY_SECONDS = 5.0  # no new attempt after this long
FIRST_PAUSE_SECONDS = 0.05
TURN_SECONDS = 9.0  # to wait for other writers of this process; SQLite waits ten for other processes
ROLLED_BACK = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock
NO_RIGHTS = {"42501", "3F000"}  # PostgreSQL: permission denied, no schema to create in
REQUIRED_RIGHTS = "grant its user USAGE and CREATE on the schema, and all on the tables in it"
OUR_MISTAKES = (IntegrityError, ProgrammingError, DataError)
NO_HOLDER = ""  # the holder of a released lease


class _CallDeadline(threading.local):
    moment: float | None = None


_deadline = _CallDeadline()


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound the registry calls of this thread inside the block. An earlier outer deadline stays in force."""
    before = _deadline.moment
    moment = time.monotonic() + seconds
    _deadline.moment = moment if before is None else min(before, moment)
    try:
        yield
    finally:
        _deadline.moment = before


def seconds_left() -> float:
    """Seconds until the deadline of the current call."""
    return CALL_SECONDS if _deadline.moment is None else max(0.0, _deadline.moment - time.monotonic())


class Transactions:
    """Runs work inside transactions of one engine, from any thread."""

    def __init__(self, engine: Engine, pause: Callable[[float], None] = time.sleep) -> None:
        is_sqlite = engine.dialect.name == "sqlite"
        self._pause = pause
        self._writer = engine.execution_options(writes=True)
        # All reads of one transaction see one snapshot; SQLite does that by default.
        snapshot = {} if is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader = engine.execution_options(writes=False, **snapshot)
        # SQLite has one writer. Threads that queue here wake at once; in SQLite they would poll.
        self._turn = threading.Lock() if is_sqlite else None

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a read-only transaction. Raises `RegistryUnavailable`."""
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T], seconds: float = CALL_SECONDS) -> T:
        """Run `work` in a transaction and commit it. Raises `RegistryUnavailable`.

        A retry calls `work` again, each time in a new transaction.
        """
        with self._in_turn():
            return self._run(self._writer, work, seconds)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise RegistryUnavailable("registry: too many writers wait for each other")
        try:
            yield
        finally:
            self._turn.release()

    def _run(self, engine: Engine, work: Callable[[Connection], T], seconds: float = CALL_SECONDS) -> T:
        with within(seconds):
            return self._attempts(engine, work)

    def _attempts(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        begun = time.monotonic()
        for attempt in range(ATTEMPTS):
            is_committing = False
            try:
                with engine.connect() as connection, connection.begin() as transaction:
                    outcome = work(connection)
                    is_committing = True
                    transaction.commit()
                    return outcome
            except OUR_MISTAKES as error:
                if getattr(error.orig, "sqlstate", None) not in NO_RIGHTS:
                    raise
                raise RegistryUnavailable(f"registry: {_reason(error)}; {REQUIRED_RIGHTS}") from error
            except (DBAPIError, PoolExhausted) as error:
                is_late = time.monotonic() - begun > RETRY_SECONDS or not seconds_left()
                is_last = attempt == ATTEMPTS - 1 or is_late
                if is_last or not _may_retry(error, is_committing):
                    raise RegistryUnavailable(f"registry: {_reason(error)}") from error
            self._pause(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311
        raise AssertionError("unreachable")


def _may_retry(error: DBAPIError | PoolExhausted, is_committing: bool) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in ROLLED_BACK:
        return True
    if is_committing:
        return False  # the commit may or may not have taken effect
    has_lost_connection = error.connection_invalidated or error.statement is None  # None: never had one
    return has_lost_connection or "database is locked" in str(error.orig)


def _reason(error: DBAPIError | PoolExhausted) -> str:
    """One line, without the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


class RegistryBase:
    """The engine, clock and transactions that all mixins of `Registry` share."""

    def __init__(self, engine: Engine, now: Callable[[], float] | None = None) -> None:
        self._engine = engine
        self._clock = injected(now) if now else clock_of(engine)
        self._transactions = Transactions(engine)
        self._read = self._transactions.read
        self._write = self._transactions.write

    def _write_fenced(self, fence: Fence | None, work: Callable[[Connection], T]) -> T:
        """Write under a fence. Raises `StaleEpoch`, without effect, if the fence is no longer current."""

        def fenced(connection: Connection) -> T:
            _require_current(connection, fence)
            return work(connection)

        return self._write(fenced)


def _require_current(connection: Connection, fence: Fence | None) -> None:
    """Lock the lease until the transaction ends, so that no other holder can take it over meanwhile.

    An expired lease is accepted: it fences until another holder takes it.
    """
    if fence is None:
        return
    query = select(leases.c.epoch).where(is_held_by(fence))
    if connection.scalar(query.with_for_update(read=True)) is None:
        raise StaleEpoch(f"epoch {fence.epoch} of {fence.name} is over")


def is_held_by(fence: Fence) -> ColumnElement[bool]:
    """SQL condition: the lease has this epoch and this holder, expired or not."""
    return and_(
        leases.c.name == fence.name,
        leases.c.epoch == fence.epoch,
        leases.c.holder == fence.holder,
        leases.c.holder != NO_HOLDER,
    )
