"""Logs of processes that live stay small, with one older generation each; the last lines of a log explain why
its process ended.

A log is the standard output of a process and of its children, Java included: renaming it would change nothing
for them. So it is copied and then cut to nothing; all of them append, and go on at its new end.
"""

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kopitiam.landing.kept_logs import SPARK_LOG, is_kept

_LOOK_SECONDS = 1.0
_PIECE = 1 << 20
_log = logging.getLogger(__name__)
MOST_BYTES = 16 << 20
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
