"""What services write is for their user alone: customers' birthdates are in it."""

import logging
import os
import stat
from pathlib import Path

from kopitiam.contracts.errors import InputError

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
