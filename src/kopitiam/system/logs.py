"""What Spark said in lives that ended badly: the latest few logs, each cut to its end, below `logs` in the
home.
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
    """Of one node, or of `serve` or `analyze`."""

    folder: Path
    name: str

    def keep(self, scratch: Path) -> Path | None:
        """Moves the log in this scratch folder, with its older generation, to where it stays; both are for
        their owner alone. Returns the file; None if there is no log, or no room for it."""
        parts = [log for log in (scratch / f"{SPARK_LOG}.1", scratch / SPARK_LOG) if log.exists()]
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        kept = self.folder / f"spark-{self.name}-{at}.log"
        try:
            if not sum(part.stat().st_size for part in parts):
                return None
            make_private_folder(self.folder)
            with open(kept, "xb", opener=_for_the_owner) as file:
                file.write(_end_of(parts, MOST_BYTES))
            for part in parts:
                part.unlink(missing_ok=True)
        except OSError:  # it would be kept if it could
            return None
        self._forget_the_oldest()
        return kept

    def _forget_the_oldest(self) -> None:
        for old in sorted(self.folder.glob(f"spark-{self.name}-[0-9]*Z.log"))[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                old.unlink()


def is_kept(log: Path) -> bool:
    """Whether the file is one that `KeptLogs` keeps: no process writes to it any more."""
    return _KEPT.fullmatch(log.name) is not None


def _end_of(files: Sequence[Path], most_bytes: int) -> bytes:
    """The last bytes of these files, put one after the other."""
    end = b""
    for path in reversed(files):
        with path.open("rb") as file:
            left = most_bytes - len(end)
            file.seek(max(0, path.stat().st_size - left))
            end = file.read(left) + end
    return end


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_LOOK_SECONDS = 1.0
_PIECE = 1 << 20
_log = logging.getLogger(__name__)
_LAST_BYTES = 8192
_LAST_LINES = 5
# Below a home: of nodes and services, of Spark in `kopi serve` and `kopi analyze`, of Spark in each pipeline.
_LIVE_LOGS = ("logs/*.log", f"scratch/{SPARK_LOG}", f"scratch/*/*/{SPARK_LOG}")


def rotate(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


@contextlib.contextmanager
def small_logs(home: Path, most_bytes: int) -> Iterator[None]:
    """While the block lasts, a thread cuts every live log below `home` that grows beyond `most_bytes`."""
    stopping = threading.Event()
    keeping = threading.Thread(target=keep_small, args=(home, most_bytes, stopping), name="logs", daemon=True)
    keeping.start()
    try:
        yield
    finally:
        stopping.set()
        keeping.join(_LOOK_SECONDS)  # it may be copying into a folder that is about to be removed


def keep_small(home: Path, most_bytes: int, stopping: threading.Event) -> None:
    """Cuts live logs below `home` that grow beyond `most_bytes`, until `stopping` is set. Each node does this
    for all of them, since services, and pipelines that stand still, cannot."""
    while not stopping.wait(_LOOK_SECONDS):
        for log in (log for pattern in _LIVE_LOGS for log in home.glob(pattern)):
            if is_kept(log):
                continue
            try:
                cut(log, most_bytes)
            except OSError as error:
                _log.warning("%s: cannot be rotated: %s", log, error.strerror)


def cut(log: Path, most_bytes: int) -> None:
    """Moves what is in the log to the older generation, if it is too much. What is written at the very moment
    between copying and cutting is lost."""
    with contextlib.suppress(FileNotFoundError), log.open("r+b") as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            return
        with contextlib.suppress(BlockingIOError):  # another node is at it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size > most_bytes:
                _copy_and_cut(file, log.with_name(f"{log.name}.1"))


def _copy_and_cut(file: BinaryIO, older: Path) -> None:
    temporary = older.with_name(f".{older.name}")
    try:
        with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as copy:
            most = (
                os.fstat(file.fileno()).st_size + _PIECE
            )  # one that writes faster than this reads has no end
            while copy.tell() < most and (piece := file.read(_PIECE)):
                copy.write(piece)
            file.truncate(0)
        temporary.replace(older)
    finally:
        temporary.unlink(missing_ok=True)


def last_words(log: Path, since: int = 0) -> str:
    """The last lines after the first `since` bytes, to be put behind what they explain."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            begin = since if since <= end else 0  # cut meanwhile
            file.seek(max(begin, end - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    if len(lines) > 1:
        return "".join(f"\n  {line}" for line in lines)
    return f" {lines[0].strip()}" if lines else " it said nothing"
