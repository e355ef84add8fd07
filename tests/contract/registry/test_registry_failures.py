"""Failures of the database, and the creation of the registry's tables."""

import sqlite3
import uuid
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from kopitiam.contracts.errors import ConfigError, RegistryUnavailable
from kopitiam.registry import open_registry
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.migrations import upgrade
from kopitiam.registry.schema import metadata
from kopitiam.registry.transactions import ATTEMPTS, Transactions


def broken(message: str) -> OperationalError:
    return OperationalError("SELECT 1", {}, sqlite3.OperationalError(message))


def test_a_registry_that_works_passes_its_check(registry) -> None:
    assert registry.check() is None
    assert registry.check() is None  # a repeated check passes too


def test_the_migrations_make_the_tables_that_the_code_expects(place) -> None:
    engine = connect_engine(place.url, place.home)
    upgrade(engine)
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_rows_are_there_after_opening_again(place) -> None:
    first = open_registry(place.url, place.home)
    run = first.open_run({}, "", "anna", idempotency_key=None, lease_seconds=60, shards=1).run
    first.close()
    again = open_registry(place.url, place.home)
    assert again.get_run(run.run) == run
    again.close()


def test_a_registry_of_a_newer_version_is_not_touched(place) -> None:
    engine = connect_engine(place.url, place.home)
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(RegistryUnavailable, match="another version"):
        upgrade(engine)
    engine.dispose()


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnavailable, match="refused") as failure:
        open_registry("postgresql://anna:secret@127.0.0.1:1/nothing", tmp_path)
    assert failure.value.exit_code == 3
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("rights", "message"),
    [("USAGE", "permission denied for schema"), ("CREATE", "no schema has been selected to create in")],
)
def test_the_error_for_a_user_without_rights_says_what_to_grant(
    postgresql, postgresql_url: str, tmp_path: Path, rights: str, message: str
) -> None:
    guest, schema = f"guest_{uuid.uuid4().hex}", postgresql_url.rpartition("%3D")[2]
    url = make_url(postgresql_url).set(username=guest).render_as_string(hide_password=False)
    with psycopg.connect(postgresql.get_uri(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {guest} LOGIN")
        admin.execute(f"GRANT {rights} ON SCHEMA {schema} TO {guest}")
        try:
            with pytest.raises(
                RegistryUnavailable, match=f"^registry: {message}.*; grant its user"
            ) as failure:
                open_registry(url, tmp_path)
        finally:
            admin.execute(f"DROP OWNED BY {guest}")
            admin.execute(f"DROP ROLE {guest}")
    assert "\n" not in str(failure.value)
    assert failure.value.exit_code == 3


@pytest.mark.parametrize("url", ["mysql://host/database", "not an address", ""])
def test_another_kind_of_database_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sqlite"):
        connect_engine(url, tmp_path)


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").write_text("not a database " * 100)
    with pytest.raises(RegistryUnavailable, match="not a database"):
        open_registry("sqlite", tmp_path)


def test_a_home_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegistryUnavailable):
        open_registry("sqlite", tmp_path / "file" / "home")


def test_a_full_disk_is_unavailable_and_what_was_there_stays(tmp_path: Path) -> None:
    registry = open_registry("sqlite", tmp_path)
    run = registry.open_run({}, "", "anna", idempotency_key=None, lease_seconds=60, shards=1).run.run
    registry.close()
    engine = connect_engine("sqlite", tmp_path)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    with pytest.raises(RegistryUnavailable, match="full"):
        type(registry)(engine).open_run(
            {}, "x" * 100_000, "anna", idempotency_key=None, lease_seconds=60, shards=1
        )
    engine.dispose()
    assert [found.run for found in open_registry("sqlite", tmp_path).list_runs(None, 10)] == [run]


def test_sqlite_is_durable_and_shared(tmp_path: Path) -> None:
    engine = connect_engine("sqlite", tmp_path)
    with engine.connect() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert settings == ["wal", 2, 1, 10_000]
    engine.dispose()


def test_postgresql_commits_are_durable_even_if_the_server_says_otherwise(
    postgresql_url: str, tmp_path: Path
) -> None:
    engine = connect_engine(f"{postgresql_url}%20-csynchronous_commit%3Doff", tmp_path)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    engine.dispose()


def test_postgresql_keeps_the_timeouts_that_its_administrator_chose(
    postgresql_url: str, tmp_path: Path
) -> None:
    engine = connect_engine(f"{postgresql_url}%20-clock_timeout%3D3s", tmp_path)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "3s"
    engine.dispose()


def test_a_restarted_postgresql_is_found_again(postgresql_url: str, tmp_path: Path) -> None:
    registry = open_registry(postgresql_url, tmp_path)
    registry.check()
    with psycopg.connect(postgresql_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kopitiam'"
        )
    registry.check()
    assert registry.last_sequence(0) == 0
    registry.close()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return connect_engine("sqlite", tmp_path)


@pytest.fixture
def transactions(engine: Engine) -> Transactions:
    return Transactions(engine, pause=lambda _: None)


def test_a_sqlite_writer_is_alone_from_its_beginning_and_a_reader_is_not(
    transactions: Transactions, tmp_path: Path
) -> None:
    def others_may_write(_: Connection) -> bool:
        other = sqlite3.connect(tmp_path / "registry.sqlite", timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        finally:
            other.close()
        return True

    assert transactions.read(others_may_write)
    assert not transactions.write(others_may_write)


def test_work_that_meets_a_lock_is_retried(transactions: Transactions) -> None:
    failures = [broken("database is locked")] * 2

    def work(connection: Connection) -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert transactions.write(work) == "done"


def test_work_that_meets_a_lock_every_time_is_given_up(transactions: Transactions) -> None:
    calls = []

    def work(connection: Connection) -> None:
        calls.append(1)
        raise broken("database is locked")

    with pytest.raises(RegistryUnavailable, match="locked"):
        transactions.write(work)
    assert len(calls) == ATTEMPTS


def test_a_commit_that_broke_is_not_repeated(transactions: Transactions, engine: Engine) -> None:
    calls = []

    def breaking(connection: Connection) -> None:
        raise broken("database is locked")

    event.listen(engine, "commit", breaking)
    with pytest.raises(RegistryUnavailable):
        transactions.write(lambda _: calls.append(1))
    assert len(calls) == 1


def test_programming_errors_are_raised_unchanged(transactions: Transactions) -> None:
    with pytest.raises(ZeroDivisionError):
        transactions.write(lambda _: 1 / 0)
