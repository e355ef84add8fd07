"""The registry's time: the only clock whose readings are compared between processes and machines.

PostgreSQL: the server's clock, read inside the transaction. SQLite, which is on one machine: the time since
that machine booted, plus an offset stored in the registry. All processes of the machine agree on it,
and no lease expires because the machine's date was changed. See docs/decisions/0014-time.md.
"""

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select, text

from kopitiam.registry.schema import registry_clock, runs, upsert

Clock = Callable[[Connection], float]

_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_ROW = "registry"
_SERVER_TIME = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())::double precision")


def clock_of(engine: Engine) -> Clock:
    """Return the clock of the database behind `engine`."""
    return _SqliteClock() if engine.dialect.name == "sqlite" else _server_time


def injected(now: Callable[[], float]) -> Clock:
    """Return a clock that the caller controls, for tests."""
    return lambda _connection: now()


def _server_time(connection: Connection) -> float:
    """The server's current time. `now()` would be the time at which the transaction began."""
    seconds: float = connection.execute(_SERVER_TIME).scalar_one()
    return seconds


def set_clock(connection: Connection) -> None:
    """Set the clock of a SQLite registry by the machine's date, at its first opening after the machine
    booted, never before the latest time in the registry. No effect otherwise, and none on PostgreSQL."""
    if connection.dialect.name != "sqlite" or (boot := boot_id()) is None:
        return
    if _offset(connection, boot) is not None:
        return
    latest = connection.scalar(select(func.max(func.coalesce(runs.c.finished_at, runs.c.created_at)))) or 0.0
    values = {"boot": boot, "offset_seconds": max(time.time(), latest) - since_boot()}
    setting = upsert(connection, registry_clock).values(name=_ROW, **values)
    connection.execute(setting.on_conflict_do_update(index_elements=[registry_clock.c.name], set_=values))


class _SqliteClock:
    """Reads the offset once: it changes only when the machine boots, which ends this process too."""

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
    """None where the system has none; a SQLite registry then uses the machine's date."""
    try:
        return _BOOT_FILE.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def since_boot() -> float:
    """Seconds since boot, sleep included: equal for all processes of the machine, and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
