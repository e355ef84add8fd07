"""Runs the configured revive command for dead nodes, on separate threads."""

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
from kopitiam.supervision.liveness import Liveness

_TIMEOUT_SECONDS = 60.0  # of one command
_ENDING_SECONDS = 2.0
_MAX_CONCURRENT = 4
_NOT_CONNECTED = "exit code 255"  # of ssh
_log = logging.getLogger(__name__)


class Reviver:
    def __init__(
        self,
        command: str,
        config: Path | None,
        on_done: Callable[[str, str | None], None],
        host_of: Callable[[str], str],
    ) -> None:
        """`{node}`, `{host}` and `{config}` are substituted; `on_done` is called with each node after its
        command, and with the reason if it failed.

        Raises `ConfigError` if the command is malformed.
        """
        self._command = command
        self._config = config
        self._on_done = on_done
        self._host_of = host_of
        self._slots = threading.Semaphore(_MAX_CONCURRENT)
        self._lock = threading.Lock()
        self._commands: dict[str, subprocess.Popen[str] | None] = {}  # None while queued
        self._is_closed = False
        self.argv("node")  # fail now rather than at the first revival

    def revive(self, node: str) -> None:
        """Start the command in the background; a no-op while one is running for this node."""
        with self._lock:
            if self._is_closed or node in self._commands:
                return
            self._commands[node] = None
        # A daemon thread: it does not delay the end of the process.
        threading.Thread(target=self._run, args=(node,), name=f"reviver {node}", daemon=True).start()

    def close(self) -> None:
        """End the running commands. The nodes they have started are in their own sessions, and stay."""
        with self._lock:
            self._is_closed = True
            running = [process for process in self._commands.values() if process is not None]
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
            # Without a file, all settings come from the environment.
            command = self._command if self._config else self._command.replace("--config {config}", "")
            words = shlex.split(command)
            values = {
                "node": node,
                "host": self._host_of(node),
                "config": self._config or "kopitiam.toml",
            }
            argv = [word.format(**values) for word in words]
        except (ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"monitor.revive: {self._command!r}: {error}") from None
        if not argv:
            raise ConfigError("monitor.revive: expected a command")
        if argv[0] == "kopi":  # this installation, whatever the PATH says
            argv[:1] = [sys.executable, "-m", "kopitiam"]
        return argv

    def _run(self, node: str) -> None:
        failure = None
        with self._slots:
            try:
                failure = self._execute(node)
            except (OSError, subprocess.TimeoutExpired) as error:
                failure = str(error)
            finally:
                with self._lock:
                    del self._commands[node]
        if failure is not None:
            _log.error("reviving %s on %s: %s", node, self._host_of(node), failure)
        self._on_done(node, failure)

    def _execute(self, node: str) -> str | None:
        """Returns why the command failed; None if it succeeded."""
        process = self._start(node)
        if process is None:
            return None
        with process:
            try:
                output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                raise
        if not process.returncode or self._is_closed:
            return None
        last = (errors.strip() or output.strip() or "no output").splitlines()[-1]
        return f"exit code {process.returncode}: {last}"

    def _start(self, node: str) -> "subprocess.Popen[str] | None":
        """None after `close`, which ends everything started here."""
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
            self._commands[node] = process
            return process


def handle_revived(liveness: Liveness, node: str, now: float, failure: str | None) -> None:
    """Tell the state machine how the command for a node has ended."""
    if failure is not None and failure.startswith(_NOT_CONNECTED):
        liveness.on_unreachable(node, now, failure)
    else:
        liveness.on_revived(node, now, failure)


def _signal(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    """To the whole process group of the command."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
