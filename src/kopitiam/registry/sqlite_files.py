"""The file of an embedded registry: that it is there, sound, and stays the same one while it is in use."""

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from kopitiam.contracts.errors import RegistryRefused, RegistryUnavailable
from kopitiam.contracts.identity import MARK_FILE

CHECK_SECONDS = 20.0  # some gigabytes
_STEPS = 10_000  # of SQLite, between two looks at the clock
_RUNS = ("landing/table=*/shard=*/run=*", "results/run=*")
_log = logging.getLogger(__name__)


def require_there(file: Path) -> None:
    """A new file in place of one that was moved away would know nothing of what lies in the home."""
    home = file.parent
    if file.exists():
        return
    if (home / MARK_FILE).exists() or any(any(home.glob(pattern)) for pattern in _RUNS):
        raise RegistryRefused(
            f"{file}: is missing, though {home} was used with it: put it back, or restore its back-up; or, "
            "to begin anew without the runs that are there, stop every node and run kopi adopt"
        )


def require_sound(file: Path) -> None:
    """Every page is looked at, and every reference, within a bounded time: a very large file only in part."""
    if not file.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=CHECK_SECONDS)) as connection:
            deadline = time.monotonic() + CHECK_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            flaws = [row[0] for row in connection.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
            if not flaws and (row := connection.execute("PRAGMA foreign_key_check").fetchone()):
                flaws = [f"a row of {row[0]} belongs to no row of {row[2]}"]
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            _log.warning("%s: too large to be checked within %g s", file, CHECK_SECONDS)
        return  # locked or out of reach: opening it tells more
    except sqlite3.DatabaseError as error:
        flaws = [str(error)]
    if flaws:
        what = flaws[0].splitlines()[-1]
        raise RegistryRefused(
            f"{file}: is damaged ({what}): stop every node and restore its back-up, then run kopi adopt"
        )


class SameFile:
    """SQLite goes on in a file that was moved away, and would make a new one for the next connection."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[int, int] | None = None

    def note(self) -> None:
        if self._known is None:
            self._known = self._now()

    def require(self) -> None:
        if self._known is not None and self._now() != self._known:
            raise RegistryUnavailable(
                f"registry: {self._file} was moved away or replaced while in use: stop, put it back, and "
                "start again"
            )

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
