"""Whoever starts or stops a node has it alone, and leaves no lock file when the node is gone."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kopitiam.contracts.errors import ServiceError

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
