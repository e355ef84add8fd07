"""`Registry`: all transactions of the registry in one class, and how to open it.

The transactions of each noun are in its module; here are those about the registry itself: its identity, the
orphans in its storage, its time and health.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from sqlalchemy import Connection, delete, exists, insert, literal, select, update

from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.contracts.layout import Identity
from kopitiam.registry import clock
from kopitiam.registry.attempts import AttemptTransactions
from kopitiam.registry.barriers import BarrierTransactions
from kopitiam.registry.batches import BatchTransactions
from kopitiam.registry.chunks import ChunkTransactions
from kopitiam.registry.data_files import DataFileTransactions
from kopitiam.registry.data_runs import DataRunTransactions
from kopitiam.registry.data_sets import DataSetTransactions
from kopitiam.registry.engine import (
    SQLITE_FILE,
    connect_engine,
    empty_log,
    require_exists,
    require_sound,
    sqlite_engine,
)
from kopitiam.registry.keeping import KeepingTransactions
from kopitiam.registry.leases import LeaseTransactions, NodeTransactions
from kopitiam.registry.migrations import upgrade
from kopitiam.registry.results import ResultTransactions
from kopitiam.registry.runs import RunTransactions
from kopitiam.registry.schema import identity, leases, metadata, orphans, readiness, runs, upsert
from kopitiam.registry.tables import TableTransactions
from kopitiam.registry.transactions import CALL_SECONDS, Transactions, within


class Registry(
    RunTransactions,
    ChunkTransactions,
    TableTransactions,
    BatchTransactions,
    AttemptTransactions,
    BarrierTransactions,
    ResultTransactions,
    DataSetTransactions,
    DataFileTransactions,
    DataRunTransactions,
    KeepingTransactions,
    LeaseTransactions,
    NodeTransactions,
):
    """The state of all runs and nodes, in SQLite or PostgreSQL.

    Every method is one transaction, safe to call from many threads and processes at once. A method about a
    run raises `RunNotFound` for an unknown id. Every method raises `RegistryUnavailable` when the database
    fails; if that happens during a commit, the change may have been made. The caller then repeats the call:
    every change is idempotent, or refused the second time.
    """

    def identity(self) -> Identity:
        return self._read(_get_identity)

    def advance_mark(self, beyond: int = 0) -> Identity:
        """Increase the mark, to more than `beyond`, and return the identity."""

        def advance(connection: Connection) -> Identity:
            # The first statement locks the row, so that no mark is given twice.
            connection.execute(update(identity).values(mark=identity.c.mark + 1))
            connection.execute(update(identity).where(identity.c.mark <= beyond).values(mark=beyond + 1))
            return _get_identity(connection)

        return self._write(advance)

    def record_orphans(self, unknown: Iterable[str], max_seconds: float) -> dict[str, float]:
        """Record the names in storage that the registry does not know, and return each one's age in seconds.

        Since the last call an age grows by `max_seconds` at most, whatever the clock says. Names that are
        not in `unknown` any more are deleted.
        """
        names = sorted(set(unknown))

        def record(connection: Connection) -> dict[str, float]:
            now = self._clock(connection)
            connection.execute(select(identity.c.id).with_for_update()).all()  # one gateway at a time
            known = {row.name: row for row in connection.execute(select(orphans))}
            ages = {}
            for name in names:
                row = known.get(name)
                ages[name] = row.waited + min(max(now - row.seen_at, 0.0), max_seconds) if row else 0.0
            connection.execute(delete(orphans))
            if ages:
                rows = [{"name": name, "waited": age, "seen_at": now} for name, age in ages.items()]
                connection.execute(insert(orphans), rows)
            return ages

        return self._write(record)

    def now(self) -> float:
        """Return the registry's time in seconds since 1970, the only time compared between processes."""
        return self._read(self._clock)

    def clock_offset(self) -> float:
        """Return by how many seconds the clock of this machine is ahead of the registry's. For display only.

        0 for SQLite: it is on this machine, and keeps its time when the machine's date is changed.
        """
        if self._engine.dialect.name == "sqlite":
            return 0.0
        return time.time() - self.now()

    def check(self) -> None:
        """Write and read back a row. Raises `RegistryUnavailable` if either fails."""
        with within(CALL_SECONDS):
            written = self._write(_write_check)
            is_readable = self._read(lambda c: c.scalar(select(readiness.c.checks)) or 0) >= written
        if not is_readable:
            raise RegistryUnavailable("registry: a row that was written cannot be read back")

    def erase(self) -> None:
        """Remove deleted rows from the files of a SQLite registry too. They are overwritten in its database,
        but earlier pages stay in the write-ahead log until it is emptied; if it is in use for long, the next
        call empties it. PostgreSQL does both by itself in time."""
        if self._engine.dialect.name == "sqlite":
            empty_log(self._engine)

    def close(self) -> None:
        self._engine.dispose()


def open_registry(
    url: str,
    home: Path,
    now: Callable[[], float] | None = None,
    *,
    is_checked: bool = False,
    may_be_new: bool = False,
) -> Registry:
    """Open the registry at `url`, or in `home` for `sqlite`, and migrate its tables to this version.

    `now` replaces its clock. Raises `RegistryRefused` if the SQLite file of a used home is missing, unless
    `may_be_new`, and, if `is_checked`, when the file is damaged.
    """
    if url == "sqlite":
        file = home / SQLITE_FILE
        if not may_be_new:
            require_exists(file)
        if is_checked:
            require_sound(file)
    engine = connect_engine(url, home)
    upgrade(engine)
    Transactions(engine).write(clock.set_clock)
    return Registry(engine, now)


def create_temporary_registry(home: Path) -> Registry:
    """Create a registry in an empty home that is removed with its process. Nothing is synced or migrated.

    Other processes connect to it as to any other.
    """
    engine = sqlite_engine(home / SQLITE_FILE, is_synced=False)
    transactions = Transactions(engine)
    transactions.write(_create_tables)
    transactions.write(clock.set_clock)
    return Registry(engine)


def connect_registry(url: str, home: Path) -> Registry:
    """Connect to a registry that another process has opened, and migrated, before."""
    return Registry(connect_engine(url, home))


def _create_tables(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(insert(identity).values(name="registry", id=uuid.uuid4().hex, mark=0))


def _get_identity(connection: Connection) -> Identity:
    row = connection.execute(select(identity.c.id, identity.c.mark)).one()
    used = select(literal(1)).where(exists(select(runs.c.run)) | exists(select(leases.c.name)))
    return Identity(row.id, row.mark, row.mark > 0 or connection.scalar(used) is not None)


def _write_check(connection: Connection) -> int:
    writing = upsert(connection, readiness).values(name="registry", checks=1)
    checks: int = connection.execute(
        writing.on_conflict_do_update(
            index_elements=[readiness.c.name], set_={"checks": readiness.c.checks + 1}
        ).returning(readiness.c.checks)
    ).scalar_one()
    return checks
