"""Locks of a home folder, which one service or the nodes of one fleet may use, and its scratch folder."""

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from kopitiam.contracts.errors import ConfigError, InputError, UserError
from kopitiam.system.files import LockTimeout, locked
from kopitiam.system.logs import KeptLogs

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def shared_home(home: Path) -> Iterator[None]:
    """Locks the home for the nodes of a fleet. Raises ConfigError if a `kopi serve` uses it."""
    with _lock(home, f"{home}: a kopi serve uses this home; a fleet needs its own", is_shared=True):
        yield


@contextlib.contextmanager
def exclusive_home(home: Path) -> Iterator[Path]:
    """Locks the home for this process, and returns an empty scratch folder in it.

    Raises ConfigError if another service or a fleet uses the home.
    """
    with _lock(home, f"{home}: another kopi serve or a fleet uses this home; choose another with --home"):
        scratch, logs = home / "scratch", KeptLogs(home / "logs", "serve")
        remove_crashed(scratch, logs)
        with scratch_folder(scratch, logs):
            yield scratch


@contextlib.contextmanager
def scratch_folder(scratch: Path, logs: KeptLogs) -> Iterator[None]:
    """Makes the folder, and removes it after the block. If the block fails, Spark's log in it is kept, unless
    the error is the user's, such as a setting that is refused at the start."""
    scratch.mkdir(exist_ok=True)
    try:
        yield
    except UserError:
        raise
    except Exception:
        if kept := logs.keep(scratch):
            _log.error("Spark's log is kept in %s", kept)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_crashed(scratch: Path, logs: KeptLogs) -> None:
    """Removes the scratch folder of a process that crashed, and keeps Spark's log."""
    if kept := logs.keep(scratch):
        _log.warning("an earlier process crashed; Spark's log is kept in %s", kept)
    shutil.rmtree(scratch, ignore_errors=True)


def _lock(home: Path, refusal: str, *, is_shared: bool = False) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(locked(home / "serve.lock", 0, is_shared=is_shared))
        return stack
    except LockTimeout:
        raise ConfigError(refusal) from None
    except OSError as error:
        raise InputError(f"{home}: cannot be used as home: {error.strerror}") from None
