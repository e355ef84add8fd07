"""Nodes as detached processes: launched at most once, and stopped with all their children.

The processes of a node are found by an environment variable that children inherit, not by recorded pids.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from kopitiam.contracts.errors import ConfigError, KopitiamError, ServiceError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.home import FleetHome, read_record, write_record
from kopitiam.system.files import locked
from kopitiam.system.logs import last_lines, rotate

ProcessState = Literal["running", "frozen", "gone"]
ProcessFinder = Callable[[], list[psutil.Process]]
_KILL_SECONDS = 10.0
_EXIT_POLL_SECONDS = 0.02
NODE_VARIABLE = "KOPI_FLEET_NODE"
STOP_SECONDS = 12.0  # a node exits within ten
_BAD_CONFIGURATION = 2
_HOLD_A_PORT: frozenset[NodeKind] = frozenset({"gateway", "service"})
_POLL_SECONDS = 0.1


def process_state(process: psutil.Process | None) -> ProcessState:
    """A zombie is gone, even if its parent has not reaped it; a stopped process is frozen."""
    if process is None:
        return "gone"
    try:
        status = process.status()
    except psutil.NoSuchProcess:
        return "gone"
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "gone"
    is_stopped = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return "frozen" if is_stopped else "running"


def is_alive(pid: int) -> bool:
    try:
        return process_state(psutil.Process(pid)) != "gone"
    except psutil.NoSuchProcess:
        return False


def processes_with_variable(variable: str, value: str) -> list[psutil.Process]:
    """All processes with this environment variable."""
    return _all_processes(lambda process: process.environ().get(variable) == value)


def processes_with_folder(folder: Path) -> list[psutil.Process]:
    """All processes with this working folder: PostgreSQL's children overwrite their environment."""
    path = str(folder.resolve())
    return _all_processes(lambda process: process.cwd() == path)


def terminate(process: psutil.Process | None, number: signal.Signals, seconds: float) -> None:
    """Send the signal and wait for the process to end. A no-op on a frozen process, which cannot react."""
    if process is None or process_state(process) != "running":
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
    _wait_gone([process], seconds)


def kill_all(name: str, find_processes: ProcessFinder) -> None:
    """SIGKILL until none is left, including children forked meanwhile. Raises `ServiceError` if some
    remain."""
    deadline = time.monotonic() + _KILL_SECONDS
    while processes := find_processes():
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in processes)
            raise ServiceError(f"{name}: still running after SIGKILL: process {pids}")
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_gone(processes, seconds=1)


def memory_of(processes: Iterable[psutil.Process]) -> int:
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _wait_gone(processes: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process_state(process) != "gone" for process in processes) and time.monotonic() < deadline:
        time.sleep(_EXIT_POLL_SECONDS)


def _all_processes(is_match: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """All matching processes, except this one and its ancestors."""
    own = psutil.Process()
    excluded = {own.pid, *(parent.pid for parent in own.parents())}
    matches = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in excluded and is_match(process) and process_state(process) != "gone":
                matches.append(process)
    return matches


@dataclass(frozen=True)
class Program:
    """How a node is run. `command` is called after earlier processes of the node are gone, and may prepare
    what the node needs."""

    name: str
    kind: NodeKind
    command: Callable[[], tuple[str, ...]]
    find_processes: ProcessFinder | None = None  # if not by the environment variable


@dataclass(frozen=True)
class Launched:
    name: str
    pid: int
    child: subprocess.Popen[bytes] | None  # None if it was already running
    log: Path
    log_start: int

    def raise_if_ended(self) -> None:
        """Raises `ConfigError` or `ServiceError`, with the last log line, if the process has ended."""
        if self.child is None:
            if not is_alive(self.pid):
                raise ServiceError(f"{self.name}: has ended:{last_lines(self.log)}")
        elif (code := self.child.poll()) is not None:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise _error(code)(f"{self.name}: {how}:{last_lines(self.log, self.log_start)}")

    def raise_if_ends_within(self, seconds: float, is_started: Callable[[], bool] = lambda: False) -> None:
        """Wait until the process has started, or for `seconds`. Raises as `raise_if_ended`."""
        deadline = time.monotonic() + seconds
        while self.child is not None and not is_started() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_POLL_SECONDS)
                self.raise_if_ended()

    def wait_until_ready(self, is_ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.raise_if_ended()
            if time.monotonic() > deadline:
                words = last_lines(self.log, self.log_start)
                raise ServiceError(f"{self.name}: not ready after {seconds:.0f} s:{words}")
            time.sleep(_POLL_SECONDS)


def launch(home: FleetHome, program: Program) -> Launched:
    """Launch a node unless it is running. A frozen process that holds a port is killed first; any other
    frozen process is left alone, and finds its epoch stale when it wakes."""
    home.make()
    with locked(home.lock(program.name)):
        record = read_record(home, program.name)
        state = process_state(record.process()) if record else "gone"
        log = home.log(program.name)
        if record and state == "running":
            return Launched(program.name, record.pid, None, log, 0)
        if state == "gone" or program.kind in _HOLD_A_PORT:
            kill_all(program.name, program.find_processes or (lambda: processes_of(home, program.name)))
        return _spawn(home, program, log)


def is_running(home: FleetHome, name: str) -> bool:
    record = read_record(home, name)
    return record is not None and process_state(record.process()) == "running"


def processes_of(home: FleetHome, name: str) -> list[psutil.Process]:
    """All processes of the node, including its children and those of earlier launches."""
    return processes_with_variable(NODE_VARIABLE, str(home.record(name)))


def stop(home: FleetHome, name: str) -> bool:
    """Stop all processes, and remove record, lock and temporary files; the log stays. Returns whether the
    node was running."""

    def end() -> None:
        record = read_record(home, name)
        terminate(record.process() if record else None, signal.SIGTERM, STOP_SECONDS)
        kill_all(name, lambda: processes_of(home, name))

    return stop_with(home, name, lambda: processes_of(home, name), end)


def stop_with(home: FleetHome, name: str, find_processes: ProcessFinder, end: Callable[[], None]) -> bool:
    """As `stop`, with `end` to end the processes, called under the node's lock."""
    traces = (home.record(name), home.lock(name), home.joined_mark(name))
    if not any(path.exists() for path in traces) and not find_processes():
        return False
    with locked(home.lock(name)):
        was_alive = bool(find_processes())
        end()
        for folder in home.temporary(name):
            shutil.rmtree(folder, ignore_errors=True)
        for path in traces:
            path.unlink(missing_ok=True)
    return was_alive


def _spawn(home: FleetHome, program: Program, log: Path) -> Launched:
    command = program.command()
    rotate(log)
    with log.open("ab") as output:
        log_start = output.tell()
        try:
            child = subprocess.Popen(
                command,
                env={**os.environ, NODE_VARIABLE: str(home.record(program.name))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{program.name}: cannot run {command[0]}: {error.strerror}") from None
        record = write_record(home, program.name, program.kind, child.pid, command)
        return Launched(program.name, record.pid, child, log, log_start)


def _error(code: int) -> type[KopitiamError]:
    return ConfigError if code == _BAD_CONFIGURATION else ServiceError
