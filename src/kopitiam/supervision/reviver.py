"""Brings a dead node back by the configured command, away from the thread that watches the others."""

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kopitiam.contracts.errors import ConfigError

_SECONDS = 60.0
_ENDING_SECONDS = 2.0
_AT_ONCE = 4
_log = logging.getLogger(__name__)


class Reviver:
    def __init__(self, command: str, config: Path | None, on_done: Callable[[str], None]) -> None:
        """`{node}` and `{config}` are put in; `on_done` hears of every node whose command was run."""
        self._command = command
        self._config = config
        self._on_done = on_done
        self._turns = threading.Semaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._in_hand: dict[str, subprocess.Popen[str] | None] = {}  # None: it waits for its turn
        self._is_closed = False
        self.argv("node")  # a command that cannot be is better told now

    def revive(self, node: str) -> None:
        """Not twice at once."""
        with self._lock:
            if self._is_closed or node in self._in_hand:
                return
            self._in_hand[node] = None
        # A daemon: the process does not wait for it when it ends.
        threading.Thread(target=self._run, args=(node,), name=f"reviver {node}", daemon=True).start()

    def close(self) -> None:
        """Ends the commands that still run. What they have started is in a session of its own, and stays."""
        with self._lock:
            self._is_closed = True
            running = [process for process in self._in_hand.values() if process is not None]
        for process in running:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + _ENDING_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)

    def argv(self, node: str) -> list[str]:
        try:
            # Without a file, the environment says it all.
            command = self._command if self._config else self._command.replace("--config {config}", "")
            words = shlex.split(command)
            argv = [word.format(node=node, config=self._config or "kopitiam.toml") for word in words]
        except (ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"monitor.revive: {self._command!r}: {error}") from None
        if not argv:
            raise ConfigError("monitor.revive: want a command")
        if argv[0] == "kopi":  # the one that we are, wherever the path leads
            argv[:1] = [sys.executable, "-m", "kopitiam"]
        return argv

    def _run(self, node: str) -> None:
        with self._turns:
            try:
                self._execute(node)
            except (OSError, subprocess.TimeoutExpired) as error:
                _log.error("reviving %s: %s", node, error)
            finally:
                with self._lock:
                    del self._in_hand[node]
        self._on_done(node)

    def _execute(self, node: str) -> None:
        process = self._start(node)
        if process is None:
            return
        with process:
            try:
                told, complained = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                raise
        if process.returncode and not self._is_closed:
            last = (complained.strip() or told.strip() or "no word").splitlines()[-1]
            _log.error("reviving %s: exit code %d: %s", node, process.returncode, last)

    def _start(self, node: str) -> "subprocess.Popen[str] | None":
        """None if it is too late: what is started here is ended by `close`."""
        argv = self.argv(node)
        with self._lock:
            if self._is_closed:
                return None
            process = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._in_hand[node] = process
            return process


def _signal(process: "subprocess.Popen[str]", what: signal.Signals) -> None:
    """To all that the command consists of."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)
