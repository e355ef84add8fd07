"""How the registry connects to its database: SQLite in the home folder, or PostgreSQL by its address.

Also the checks of the SQLite file: it exists, is sound, and stays the same file while it is in use.
"""

import contextlib
import functools
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from kopitiam.contracts.errors import ConfigError, RegistryRefused, RegistryUnavailable
from kopitiam.contracts.layout import MARK_FILE

SQLITE_FILE = "registry.sqlite"
BUSY_SECONDS = 10  # that a writer waits for another process
CONNECTIONS = 8  # kept open per process; as many again under load
POOL_SECONDS = 10  # to get one of them
ACKNOWLEDGE_MILLISECONDS = 6000  # the connection is closed if the server acknowledges no data for this long
CHECK_SECONDS = 20.0  # enough for some gigabytes
_SQLITE_STEPS = 10_000  # between two checks of the deadline
_RUN_FOLDERS = ("landing/table=*/shard=*/run=*", "results/run=*")
_log = logging.getLogger(__name__)

# Name, value if unset, and value to set: values that the server's administrator chose stay. The server must
# soon end a call that its client has abandoned: other transactions wait for its locks.
POSTGRESQL_SETTINGS = """
    SELECT set_config(name, value, false)
    FROM (VALUES
        ('synchronous_commit', 'off', 'on'),
        ('statement_timeout', '0', '15s'),
        ('lock_timeout', '0', '10s'),
        ('idle_in_transaction_session_timeout', '0', '15s'),
        ('client_connection_check_interval', '0', '5s')
    ) AS settings (name, unset, value)
    WHERE current_setting(name, true) = unset
"""


def connect_engine(url: str, home: Path) -> Engine:
    """Return an engine for `sqlite`, a file in `home`, or for `postgresql://…`. It does not connect yet.

    Raises `ConfigError` for any other address.
    """
    if url == "sqlite":
        return sqlite_engine(home / SQLITE_FILE)
    try:
        address = make_url(url)
    except ArgumentError:
        raise ConfigError("registry.url: expected sqlite or postgresql://user@host:port/database") from None
    if address.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"registry.url: {address.get_backend_name()} is not sqlite or postgresql")
    return postgresql_engine(address)


def sqlite_engine(file: Path, *, is_synced: bool = True) -> Engine:
    """Return an engine for a SQLite file. Unless `is_synced`, a crash of the machine may lose commits."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegistryUnavailable(f"registry: {file.parent}: {error.strerror}") from None
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        connect_args={"isolation_level": None, "timeout": BUSY_SECONDS},  # see _begin_sqlite
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=POOL_SECONDS,
    )
    same = _SameFile(file)
    event.listen(engine, "do_connect", lambda *_: same.require())
    event.listen(engine, "connect", functools.partial(_set_up_sqlite, is_synced))
    event.listen(engine, "connect", lambda *_: same.note())
    event.listen(engine, "begin", lambda _: same.require())
    event.listen(engine, "begin", _begin_sqlite)
    event.listen(engine, "commit", lambda _: same.require())
    return engine


def postgresql_engine(address: URL) -> Engine:
    engine = create_engine(
        address.set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": 5,
            "application_name": "kopitiam",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": ACKNOWLEDGE_MILLISECONDS,
        },
        isolation_level="READ COMMITTED",  # rows are locked where it matters
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=POOL_SECONDS,
        pool_pre_ping=True,
    )
    event.listen(engine, "do_connect", _connect_postgresql)
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_sqlite(is_synced: bool, connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    # FULL: a commit is on disk when it returns.
    cursor.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'OFF'}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA secure_delete = ON")  # deleted rows are overwritten
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins as a reader can fail at its first write, and must then start over.
    writes = connection.get_execution_options().get("writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect_postgresql(
    _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], parameters: dict[str, Any]
) -> DBAPIConnection:
    from kopitiam.registry.postgresql import connect  # noqa: PLC0415 - SQLite does not need psycopg

    connected: Any = connect(*arguments, **parameters)
    return connected  # type: ignore[no-any-return]


def _set_up_postgresql(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(POSTGRESQL_SETTINGS)
    cursor.close()
    connection.commit()  # a rollback would undo the settings


def empty_log(engine: Engine) -> None:
    """Empty the write-ahead log of a SQLite database, unless another connection keeps it in use."""
    with contextlib.closing(engine.raw_connection()) as connection:
        try:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            _log.warning("the registry's write-ahead log is not emptied yet: %s", error)


def require_exists(file: Path) -> None:
    """Raise `RegistryRefused` if a used home has no file: a new file would not list the runs in that home."""
    home = file.parent
    if file.exists():
        return
    if (home / MARK_FILE).exists() or any(any(home.glob(pattern)) for pattern in _RUN_FOLDERS):
        raise RegistryRefused(
            f"{file}: is missing, though {home} was used with it: put it back, or restore its back-up; or, "
            "to begin anew without the runs that are there, stop every node and run kopi adopt"
        )


def require_sound(file: Path) -> None:
    """Raise `RegistryRefused` if a page or a foreign key is damaged.

    The check takes at most `CHECK_SECONDS`; a very large file is checked only in part.
    """
    if not file.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=CHECK_SECONDS)) as connection:
            deadline = time.monotonic() + CHECK_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _SQLITE_STEPS)
            flaws = [row[0] for row in connection.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
            if not flaws and (row := connection.execute("PRAGMA foreign_key_check").fetchone()):
                flaws = [f"a row of {row[0]} belongs to no row of {row[2]}"]
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            _log.warning("%s: too large to be checked within %g s", file, CHECK_SECONDS)
        return  # locked or unreadable: opening it gives a better error
    except sqlite3.DatabaseError as error:
        flaws = [str(error)]
    if flaws:
        flaw = flaws[0].splitlines()[-1]
        raise RegistryRefused(
            f"{file}: is damaged ({flaw}): stop every node and restore its back-up, then run kopi adopt"
        )


class _SameFile:
    """Refuses a file that was moved or replaced: SQLite would go on in the old file, and create a new one for
    the next connection."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[int, int] | None = None

    def note(self) -> None:
        if self._known is None:
            self._known = self._current()

    def require(self) -> None:
        if self._known is not None and self._current() != self._known:
            raise RegistryUnavailable(
                f"registry: {self._file} was moved away or replaced while in use: stop, put it back, and "
                "start again"
            )

    def _current(self) -> tuple[int, int] | None:
        try:
            stat = self._file.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino
