"""Files of this machine: durable and atomic writes, file locks, folders closed to other users, the cache."""

import contextlib
import fcntl
import logging
import os
import stat
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from kopitiam.contracts.errors import InputError, ServiceError


def cache_folder() -> Path:
    """The folder of files that `kopi warm` makes once for an installation."""
    return Path(os.environ.get("KOPI_CACHE", Path(sys.prefix) / "share" / "kopitiam"))


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o666, *, is_synced: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` only if the block succeeds. Its bytes are synced before, unless
    the caller makes them durable later, or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write or replace a file in one step; it is durable, with its name and its folders, on return."""
    make_folder(path.parent)
    with atomic_file(path, mode) as file:
        file.write(data)
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each durable in its parent."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_tree(folder: Path) -> None:
    """Sync everything below a folder, and its own name."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        sync(path)


def sync(path: Path) -> None:
    """Sync the bytes of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK_SECONDS = 90.0  # longer than any service takes to start
_POLL_SECONDS = 0.05


class LockTimeout(ServiceError):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a file lock, alone or shared. Raises `LockTimeout` if another process holds it after `seconds`.

    The holder may remove the file; a process that waited for the removed file then locks a new one.
    """
    deadline = time.monotonic() + seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as lock:
            _wait_for(lock, path, deadline, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
            if _still_exists(lock, path):
                yield
                return


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock alone."""
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _wait_for(lock: IO[str], path: Path, deadline: float, kind: int) -> None:
    while True:
        try:
            return fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockTimeout(f"{path.stem}: another kopi process holds the lock {path}") from None
        time.sleep(_POLL_SECONDS)


def _still_exists(lock: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    return False


_TRAVERSE = stat.S_IXGRP | stat.S_IXOTH
_log = logging.getLogger(__name__)


def keep_private(home: Path, umask: str = "077") -> None:
    """Make the home folder, or close it to other users, and set the umask of this process and its children.

    Raises `InputError` if the folder cannot be used.
    """
    mask = int(umask, 8)
    os.umask(mask)
    try:
        home.mkdir(parents=True, exist_ok=True)
        inside = list(home.iterdir())
    except OSError as error:
        raise InputError(f"{home}: cannot be used as home: {error.strerror}") from None
    traversed = {home, home / "services"} if _has_other_users(home) else set()
    closed = [
        path for path in (home, *inside) if _close(path, mask & ~_TRAVERSE if path in traversed else mask)
    ]
    if closed:
        _log.warning("closed to other users: %s", ", ".join(map(str, closed)))


def make_private_folder(folder: Path) -> None:
    """Make the folder and its missing parents, each for its owner alone, whatever the umask."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def allow_traversal(folder: Path) -> None:
    """Let other users reach their own files below a folder of ours; they cannot list it."""
    status = folder.stat()
    if status.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(status.st_mode) | _TRAVERSE)


def _has_other_users(home: Path) -> bool:
    """Root runs PostgreSQL as another user."""
    return os.geteuid() == 0 and (home / "services" / "postgresql").exists()


def _close(path: Path, mask: int) -> bool:
    """Remove these permissions; False if the path had none of them."""
    try:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode) or not mode & mask:
            return False
        path.chmod(mode & ~mask)
    except FileNotFoundError:  # another node has removed it
        return False
    except OSError as error:
        _log.warning("%s is open to other users, and cannot be closed: %s", path, error.strerror)
        return False
    return True
