"""One transaction at a time: begun, tried again where that is safe, its troubles translated. Nothing
else in the registry catches what the database raises.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.registry.deadlines import CALL_SECONDS, seconds_left, within

T = TypeVar("T")

ATTEMPTS = 5
PATIENCE_SECONDS = 5.0  # no new attempt after this long
FIRST_PAUSE_SECONDS = 0.05
TURN_SECONDS = 9.0  # for the other writers of this process; SQLite itself waits ten for those of others
ROLLED_BACK = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock
NO_RIGHTS = {"42501", "3F000"}  # PostgreSQL: permission denied, no schema to create in
WANTED_RIGHTS = "grant its user USAGE and CREATE on the schema, and all on the tables in it"
OUR_MISTAKES = (IntegrityError, ProgrammingError, DataError)


class Transactions:
    """Runs work inside transactions of one engine, from any thread."""

    def __init__(self, engine: Engine, pause: Callable[[float], None] = time.sleep) -> None:
        is_sqlite = engine.dialect.name == "sqlite"
        self._pause = pause
        self._writer = engine.execution_options(writes=True)
        # All that is read in one transaction is of one moment; SQLite does that by itself.
        snapshot = {} if is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader = engine.execution_options(writes=False, **snapshot)
        # SQLite has one writer. Threads that queue here wake at once; in SQLite they would poll.
        self._turn = threading.Lock() if is_sqlite else None

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T], seconds: float = CALL_SECONDS) -> T:
        """`work` may be called more than once, each time in a new transaction."""
        with self._in_turn():
            return self._run(self._writer, work, seconds)

    @contextmanager
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
            is_decided = False
            try:
                with engine.connect() as connection, connection.begin() as transaction:
                    outcome = work(connection)
                    is_decided = True
                    transaction.commit()
                    return outcome
            except OUR_MISTAKES as error:
                if getattr(error.orig, "sqlstate", None) not in NO_RIGHTS:
                    raise
                raise RegistryUnavailable(f"registry: {_reason(error)}; {WANTED_RIGHTS}") from error
            except (DBAPIError, PoolExhausted) as error:
                has_waited = time.monotonic() - begun > PATIENCE_SECONDS or not seconds_left()
                is_last = attempt == ATTEMPTS - 1 or has_waited
                if is_last or not _may_repeat(error, is_decided):
                    raise RegistryUnavailable(f"registry: {_reason(error)}") from error
            self._pause(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311
        raise AssertionError("unreachable")


def _may_repeat(error: DBAPIError | PoolExhausted, is_decided: bool) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in ROLLED_BACK:
        return True
    if is_decided:
        return False  # it broke while committing: nobody knows whether it took effect
    has_lost_connection = error.connection_invalidated or error.statement is None  # None: never had one
    return has_lost_connection or "database is locked" in str(error.orig)


def _reason(error: DBAPIError | PoolExhausted) -> str:
    """One line, without the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that may say what to do ON CONFLICT: SQLite and PostgreSQL share the wording."""
    is_sqlite = connection.dialect.name == "sqlite"
    return sqlite.insert(table) if is_sqlite else postgresql.insert(table)
