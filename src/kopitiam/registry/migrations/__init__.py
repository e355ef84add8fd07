"""Migrates a registry, new or old, to the tables of this version of Kopitiam."""

from pathlib import Path

from sqlalchemy import Connection, Engine, text

from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.registry.transactions import Transactions

MIGRATION_SECONDS = 600.0  # large tables are rewritten
ONE_AT_A_TIME = 0x6B6F7069  # id of an advisory lock; no other user of the same PostgreSQL may use it


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Migrate. Safe to call from several processes at once: one of them migrates, the others wait for it."""
    transactions = Transactions(engine)
    # A server that hangs fails here after a short timeout; the migration itself has a long one.
    transactions.read(lambda connection: connection.scalar(text("SELECT 1")))
    transactions.write(lambda connection: _upgrade(connection, revision), MIGRATION_SECONDS)


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415 - takes a while to import, and is needed only here
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    if connection.dialect.name == "postgresql":
        for limit in ("statement_timeout", "lock_timeout"):
            connection.execute(text(f"SET LOCAL {limit} = '{MIGRATION_SECONDS:.0f}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ONE_AT_A_TIME})
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise RegistryUnavailable(
            f"registry: made by another version of Kopitiam, and this one cannot use it: {error}"
        ) from error
