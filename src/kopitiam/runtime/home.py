"""A home folder is used by one service at a time, or by the nodes of one fleet."""

import contextlib
import fcntl
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kopitiam.contracts.errors import ConfigError, InputError, UserError
from kopitiam.system.logs import KeptLogs

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def shared(home: Path) -> Iterator[None]:
    """The home is used with other nodes of the same fleet while the block lasts, and by no `kopi serve`."""
    with _lock_file(home) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{home}: a kopi serve uses this home; a fleet wants one of its own") from None
        yield


@contextlib.contextmanager
def owned(home: Path) -> Iterator[Path]:
    """The home is ours while the block lasts; gives a scratch folder in it, empty at first, gone at last."""
    with _lock_file(home) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{home}: another kopi serve or a fleet uses this home; choose another with --home"
            ) from None
        scratch, logs = home / "scratch", KeptLogs(home / "logs", "serve")
        if kept := logs.keep(scratch):
            _log.warning("the life before this one ended badly; what Spark said is kept in %s", kept)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        except UserError:  # refused at the start: no trouble of Spark's
            raise
        except Exception:
            if kept := logs.keep(scratch):
                _log.error("what Spark said is kept in %s", kept)
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _lock_file(home: Path) -> TextIO:
    try:
        home.mkdir(parents=True, exist_ok=True)
        return (home / "serve.lock").open("w")
    except OSError as error:
        raise InputError(f"{home}: cannot be used as home: {error.strerror}") from None
