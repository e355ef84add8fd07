"""Logs of processes: rotation while they run, the last lines of a log, and the logs of crashed Spark JVMs.

The latest few of these logs are kept in the folder `logs` of the home, each cut to its last bytes.
"""

import contextlib
import fcntl
import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from kopitiam.system.files import make_private_folder

MOST_BYTES = 16 << 20
MOST_FILES = 5  # of one name
SPARK_LOG = "spark.log"
_KEPT = re.compile(r"spark-.+-\d{8}T\d{6}\.\d{6}Z\.log")


@dataclass(frozen=True)
class KeptLogs:
    """The kept Spark logs of one node, or of `serve` or `analyze`."""

    folder: Path
    name: str

    def keep(self, scratch: Path) -> Path | None:
        """Move the Spark log in this scratch folder, with its older generation, to the kept logs.

        Returns the new file, which only its owner can read; None if there is no log, or no space for it.
        """
        parts = [log for log in (scratch / f"{SPARK_LOG}.1", scratch / SPARK_LOG) if log.exists()]
        timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        kept = self.folder / f"spark-{self.name}-{timestamp}.log"
        try:
            if not sum(part.stat().st_size for part in parts):
                return None
            make_private_folder(self.folder)
            with open(kept, "xb", opener=_owner_only) as file:
                file.write(_end_of(parts, MOST_BYTES))
            for part in parts:
                part.unlink(missing_ok=True)
        except OSError:  # keeping logs is best effort
            return None
        self._remove_oldest()
        return kept

    def _remove_oldest(self) -> None:
        for old in sorted(self.folder.glob(f"spark-{self.name}-[0-9]*Z.log"))[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                old.unlink()


def is_kept(log: Path) -> bool:
    """Whether the file is a kept log, to which no process writes any more."""
    return _KEPT.fullmatch(log.name) is not None


def _end_of(files: Sequence[Path], most_bytes: int) -> bytes:
    """Return the last bytes of these files, concatenated."""
    end = b""
    for path in reversed(files):
        with path.open("rb") as file:
            room = most_bytes - len(end)
            file.seek(max(0, path.stat().st_size - room))
            end = file.read(room) + end
    return end


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_LOOK_SECONDS = 1.0
_PIECE = 1 << 20
_log = logging.getLogger(__name__)
_LAST_BYTES = 8192
_LAST_LINES = 5
# Below a home: nodes and services; Spark in `kopi serve` and `kopi analyze`; Spark in each pipeline.
_LIVE_LOGS = ("logs/*.log", f"scratch/{SPARK_LOG}", f"scratch/*/*/{SPARK_LOG}")


def rotate(log: Path) -> None:
    """Rename a log that is too large, before a new process opens it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


@contextlib.contextmanager
def rotating_logs(home: Path, most_bytes: int) -> Iterator[None]:
    """Run a thread during the block that cuts live logs below `home` at `most_bytes`."""
    stopping = threading.Event()
    keeping = threading.Thread(
        target=rotate_logs, args=(home, most_bytes, stopping), name="logs", daemon=True
    )
    keeping.start()
    try:
        yield
    finally:
        stopping.set()
        keeping.join(_LOOK_SECONDS)  # it may be copying into a folder that is removed next


def rotate_logs(home: Path, most_bytes: int, stopping: threading.Event) -> None:
    """Cut live logs below `home` that grow beyond `most_bytes`, until `stopping` is set.

    Each node does so for all logs, since services and blocked pipelines cannot.
    """
    while not stopping.wait(_LOOK_SECONDS):
        for log in (log for pattern in _LIVE_LOGS for log in home.glob(pattern)):
            if is_kept(log):
                continue
            try:
                cut(log, most_bytes)
            except OSError as error:
                _log.warning("%s: cannot be rotated: %s", log, error.strerror)


def cut(log: Path, most_bytes: int) -> None:
    """Move the content of a log that is too large to its older generation.

    Lines that are written between the copy and the cut are lost.
    """
    with contextlib.suppress(FileNotFoundError), log.open("r+b") as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            return
        with contextlib.suppress(BlockingIOError):  # another node is cutting it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size > most_bytes:
                _copy_and_cut(file, log.with_name(f"{log.name}.1"))


def _copy_and_cut(file: BinaryIO, older: Path) -> None:
    temporary = older.with_name(f".{older.name}")
    try:
        with open(temporary, "wb", opener=_owner_only) as copy:
            # The writer may be faster than this loop: the copy must end.
            most = os.fstat(file.fileno()).st_size + _PIECE
            while copy.tell() < most and (piece := file.read(_PIECE)):
                copy.write(piece)
        temporary.replace(older)
        file.truncate(0)  # last, so that a crash before it repeats lines and loses none
    finally:
        temporary.unlink(missing_ok=True)


def last_lines(log: Path, since: int = 0) -> str:
    """Return the last lines after the first `since` bytes, to append to an error text."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            begin = since if since <= end else 0  # it was cut meanwhile
            file.seek(max(begin, end - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    if len(lines) > 1:
        return "".join(f"\n  {line}" for line in lines)
    return f" {lines[0].strip()}" if lines else " no output"
