"""The registry's time: the only clock whose readings are compared between processes and machines.

PostgreSQL: the server's clock, read inside the transaction. SQLite, which is on one machine: the time since
that machine booted, plus an offset that is kept in the registry. All processes of the machine agree on it,
and no lease runs out because the machine's date was changed. See docs/decisions/0014-time.md.
"""

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select, text

from kopitiam.registry.schema import registry_clock, runs
from kopitiam.registry.transactions import upsert

Clock = Callable[[Connection], float]

_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_ROW = "registry"
_SERVER_TIME = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())::double precision")


def clock_of(engine: Engine) -> Clock:
    return _SqliteClock() if engine.dialect.name == "sqlite" else _server_time


def injected(now: Callable[[], float]) -> Clock:
    """A clock of the caller's, for tests that let time pass."""
    return lambda _connection: now()


def _server_time(connection: Connection) -> float:
    """Not `now()`, which stands still while a transaction waits for a lock."""
    seconds: float = connection.execute(_SERVER_TIME).scalar_one()
    return seconds


def set_clock(connection: Connection) -> None:
    """Sets the clock of a SQLite registry at its first opening after the machine booted, by the machine's
    date; never back behind what the registry has seen. Does nothing otherwise, nor for PostgreSQL."""
    if connection.dialect.name != "sqlite" or (boot := boot_id()) is None:
        return
    if _offset(connection, boot) is not None:
        return
    latest = connection.scalar(select(func.max(func.coalesce(runs.c.finished_at, runs.c.created_at)))) or 0.0
    values = {"boot": boot, "offset_seconds": max(time.time(), latest) - since_boot()}
    setting = upsert(connection, registry_clock).values(name=_ROW, **values)
    connection.execute(setting.on_conflict_do_update(index_elements=[registry_clock.c.name], set_=values))


class _SqliteClock:
    """Reads the offset once: it stays until the machine boots, which this process does not survive."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def __call__(self, connection: Connection) -> float:
        if self._offset is None and (boot := boot_id()) is not None:
            self._offset = _offset(connection, boot)
        return time.time() if self._offset is None else since_boot() + self._offset


def _offset(connection: Connection, boot: str) -> float | None:
    query = select(registry_clock.c.offset_seconds).where(
        registry_clock.c.name == _ROW, registry_clock.c.boot == boot
    )
    offset: float | None = connection.scalar(query)
    return offset


def boot_id() -> str | None:
    """None where the system does not tell; there a SQLite registry goes by the machine's date."""
    try:
        return _BOOT_FILE.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def since_boot() -> float:
    """The same for all processes of the machine, asleep or awake; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
