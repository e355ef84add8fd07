"""Files of this machine that are on disk for good: synced, then named, then the name is synced."""

import contextlib
import fcntl
import logging
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kopitiam.contracts.errors import InputError, ServiceError


def replace_file(path: Path, data: bytes) -> None:
    """Durable when it returns, for what may be sent anew; the last one counts."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_tree(folder: Path) -> None:
    """Everything below it, and its own name."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        sync(path)


def sync(path: Path) -> None:
    """Of a file its bytes, of a folder the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK_SECONDS = 90.0  # longer than any service takes to start
_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """The file may be removed by its holder: who waited for it then begins anew."""
    deadline = time.monotonic() + seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as lock:
            _wait_for(lock, path, deadline)
            if _is_there_still(lock, path):
                yield
                return


def _wait_for(lock: IO[str], path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ServiceError(f"{path.stem}: another kopi is busy with it, and has {path}") from None
        time.sleep(_LOOK_SECONDS)


def _is_there_still(lock: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    return False


_PASS = stat.S_IXGRP | stat.S_IXOTH
_log = logging.getLogger(__name__)


def keep_private(home: Path, umask: str = "077") -> None:
    """Makes the home folder, and closes one that others could read. From here on this process and its
    children, Java included, write files with this umask."""
    mask = int(umask, 8)
    os.umask(mask)
    try:
        home.mkdir(parents=True, exist_ok=True)
        inside = list(home.iterdir())
    except OSError as error:
        raise InputError(f"{home}: cannot be used as home: {error.strerror}") from None
    passed = {home, home / "services"} if _has_other_users(home) else set()
    closed = [path for path in (home, *inside) if _close(path, mask & ~_PASS if path in passed else mask)]
    if closed:
        _log.warning("closed to other users: %s", ", ".join(map(str, closed)))


def make_private_folder(folder: Path) -> None:
    """Makes the folder and those above it that are missing, each for its owner alone, whatever the umask."""
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def let_pass(folder: Path) -> None:
    """Lets other users go through a folder of ours to what is theirs; they cannot list it."""
    found = folder.stat()
    if found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) | _PASS)


def _has_other_users(home: Path) -> bool:
    """Root runs PostgreSQL as another user."""
    return os.geteuid() == 0 and (home / "services" / "postgresql").exists()


def _close(path: Path, mask: int) -> bool:
    """False if it was closed."""
    try:
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode) or not mode & mask:
            return False
        path.chmod(mode & ~mask)
    except FileNotFoundError:  # of another node, which has removed it
        return False
    except OSError as error:
        _log.warning("%s is open to other users, and cannot be closed: %s", path, error.strerror)
        return False
    return True
