"""Brings a dead node back by the configured command, away from the thread that watches the others."""

import logging
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kopitiam.contracts.errors import ConfigError

_SECONDS = 60.0
_AT_ONCE = 4
_log = logging.getLogger(__name__)


class Reviver:
    def __init__(self, command: str, config: Path | None, on_done: Callable[[str], None]) -> None:
        """`{node}` and `{config}` are put in; `on_done` hears of every node whose command was run."""
        self._command = command
        self._config = config
        self._on_done = on_done
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reviver")
        self.argv("node")  # a command that cannot be is better told now

    def revive(self, node: str) -> None:
        self._pool.submit(self._run, node)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def argv(self, node: str) -> list[str]:
        try:
            words = shlex.split(self._command)
            argv = [word.format(node=node, config=self._config or "kopitiam.toml") for word in words]
        except (ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"monitor.revive: {self._command!r}: {error}") from None
        if not argv:
            raise ConfigError("monitor.revive: want a command")
        if argv[0] == "kopi":  # the one that we are, wherever the path leads
            argv[:1] = [sys.executable, "-m", "kopitiam"]
        return argv

    def _run(self, node: str) -> None:
        argv = self.argv(node)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.error("reviving %s: %s", node, error)
        else:
            if done.returncode:
                last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
                _log.error("reviving %s: exit code %d: %s", node, done.returncode, last)
        self._on_done(node)
