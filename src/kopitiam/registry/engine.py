"""How the registry reaches its database: SQLite under the home folder, or PostgreSQL by its address."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from kopitiam.contracts.errors import ConfigError, RegistryUnavailable
from kopitiam.registry.sqlite_files import SameFile

SQLITE_FILE = "registry.sqlite"
BUSY_SECONDS = 10  # how long a writer waits for another one
CONNECTIONS = 8  # kept open per process; as many again under load
POOL_SECONDS = 10  # to get one of them
UNHEARD_MILLISECONDS = 6000  # what was sent and not acknowledged for so long breaks the connection

# Only where the server's administrator has not chosen: each setting, its value if unset, what we want. The
# server must not go on for long with a call that its client has given up: others wait for the locks.
POSTGRESQL_SETTINGS = """
    SELECT set_config(name, wanted, false)
    FROM (VALUES
        ('synchronous_commit', 'off', 'on'),
        ('statement_timeout', '0', '15s'),
        ('lock_timeout', '0', '10s'),
        ('idle_in_transaction_session_timeout', '0', '15s'),
        ('client_connection_check_interval', '0', '5s')
    ) AS settings (name, unset, wanted)
    WHERE current_setting(name, true) = unset
"""


def connect_engine(url: str, home: Path) -> Engine:
    """`sqlite` keeps a file under `home`; `postgresql://…` is used as it is. Nothing is reached yet."""
    if url == "sqlite":
        return sqlite_engine(home / SQLITE_FILE)
    try:
        address = make_url(url)
    except ArgumentError:
        raise ConfigError("registry.url: want sqlite or postgresql://user@host:port/database") from None
    if address.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"registry.url: {address.get_backend_name()} is not sqlite or postgresql")
    return postgresql_engine(address)


def sqlite_engine(file: Path) -> Engine:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegistryUnavailable(f"registry: {file.parent}: {error.strerror}") from None
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        connect_args={"isolation_level": None, "timeout": BUSY_SECONDS},  # BEGIN is ours, see below
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=POOL_SECONDS,
    )
    same = SameFile(file)
    event.listen(engine, "do_connect", lambda *_: same.require())
    event.listen(engine, "connect", _set_up_sqlite)
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
            "tcp_user_timeout": UNHEARD_MILLISECONDS,
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


def _set_up_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer that begins as a reader may find on its first write that it has to start over.
    writes = connection.get_execution_options().get("writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect_postgresql(
    _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], parameters: dict[str, Any]
) -> DBAPIConnection:
    from kopitiam.registry.bounded import connect  # noqa: PLC0415 - SQLite needs no driver of PostgreSQL's

    connected: Any = connect(*arguments, **parameters)
    return connected  # type: ignore[no-any-return]


def _set_up_postgresql(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(POSTGRESQL_SETTINGS)
    cursor.close()
    connection.commit()  # settings of a transaction that is rolled back are lost
