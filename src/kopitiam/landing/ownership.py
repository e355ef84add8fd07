"""A home folder is used by one service at a time."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from kopitiam.contracts.errors import ConfigError, InputError


@contextlib.contextmanager
def owned(home: Path) -> Iterator[Path]:
    """The home is ours while the block lasts; gives a scratch folder in it, empty at first, gone at last."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "serve.lock").open("w")
    except OSError as error:
        raise InputError(f"{home}: cannot be used as home: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{home}: another kopi serve uses this home; choose another with --home"
            ) from None
        scratch = home / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
