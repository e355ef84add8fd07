"""Nodes as detached processes: started once however often one asks, ended with all their children."""

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
from kopitiam.system.logs import last_words, rotate

ProcessState = Literal["running", "frozen", "gone"]
ProcessFinder = Callable[[], list[psutil.Process]]
_KILL_SECONDS = 10.0
_EXIT_POLL_SECONDS = 0.02


def process_state(process: psutil.Process | None) -> ProcessState:
    """A zombie has ended, whether or not its parent cares; a stopped process may wake up one day."""
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
    """All that have it in their environment."""
    return _all_that(lambda process: process.environ().get(variable) == value)


def processes_with_folder(folder: Path) -> list[psutil.Process]:
    """All that have it as their working folder: PostgreSQL's children write over their environment."""
    wanted = str(folder.resolve())
    return _all_that(lambda process: process.cwd() == wanted)


def terminate(process: psutil.Process | None, wish: signal.Signals, seconds: float) -> None:
    """One that is frozen would not hear it."""
    if process is None or process_state(process) != "running":
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(wish)
    _wait_gone([process], seconds)


def kill_all(name: str, find_processes: ProcessFinder) -> None:
    """As by kill -9, and again for those that were being born."""
    deadline = time.monotonic() + _KILL_SECONDS
    while members := find_processes():
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in members)
            raise ServiceError(f"{name}: does not end even when killed: process {pids}")
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_gone(members, seconds=1)


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


def _all_that(is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """But for this process and those that it descends from."""
    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in spared and is_wanted(process) and process_state(process) != "gone":
                found.append(process)
    return found


NODE_VARIABLE = "KOPI_FLEET_NODE"
STOP_SECONDS = 12.0  # a node promises to leave within ten
_BAD_CONFIGURATION = 2
_HOLD_A_PORT: frozenset[NodeKind] = frozenset({"gateway", "service"})
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Program:
    """How a node is run. The command is asked for when nothing of an earlier life is left, and may prepare
    what it needs."""

    name: str
    kind: NodeKind
    command: Callable[[], tuple[str, ...]]
    find_processes: ProcessFinder | None = None  # where its processes are not known by their mark


@dataclass(frozen=True)
class Launched:
    name: str
    pid: int
    child: subprocess.Popen[bytes] | None  # None if it ran already
    log: Path
    log_start: int

    def raise_if_ended(self) -> None:
        """Says why, if it has ended."""
        if self.child is None:
            if not is_alive(self.pid):
                raise ServiceError(f"{self.name}: has ended:{last_words(self.log)}")
        elif (code := self.child.poll()) is not None:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise _error(code)(f"{self.name}: {how}:{last_words(self.log, self.log_start)}")

    def settle(self, seconds: float) -> None:
        """Returns when it has lived through its first moments."""
        if self.child is not None:
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                return
            self.raise_if_ended()

    def wait_until_ready(self, is_ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.raise_if_ended()
            if time.monotonic() > deadline:
                words = last_words(self.log, self.log_start)
                raise ServiceError(f"{self.name}: not ready after {seconds:.0f} s:{words}")
            time.sleep(_LOOK_SECONDS)


def launch(home: FleetHome, program: Program) -> Launched:
    """Nothing happens if it runs. A frozen one that holds a port is killed; any other frozen one is left to
    find out that it was replaced, should it ever wake up."""
    home.make()
    with locked(home.lock(program.name)):
        record = read_record(home, program.name)
        life = process_state(record.process()) if record else "gone"
        log = home.log(program.name)
        if record and life == "running":
            return Launched(program.name, record.pid, None, log, 0)
        if life == "gone" or program.kind in _HOLD_A_PORT:
            kill_all(program.name, program.find_processes or (lambda: processes_of(home, program.name)))
        return _spawn(home, program, log)


def is_running(home: FleetHome, name: str) -> bool:
    record = read_record(home, name)
    return record is not None and process_state(record.process()) == "running"


def processes_of(home: FleetHome, name: str) -> list[psutil.Process]:
    """The node's process and all it has brought forth, those of earlier lives included."""
    return processes_with_variable(NODE_VARIABLE, str(home.record(name)))


def stop(home: FleetHome, name: str) -> bool:
    """Leaves no process, record, lock or temporary file, but the log. False if there was nothing to stop."""

    def end() -> None:
        record = read_record(home, name)
        terminate(record.process() if record else None, signal.SIGTERM, STOP_SECONDS)
        kill_all(name, lambda: processes_of(home, name))

    return stop_with(home, name, lambda: processes_of(home, name), end)


def stop_with(home: FleetHome, name: str, find_processes: ProcessFinder, end: Callable[[], None]) -> bool:
    """`end` is called with nobody else starting or stopping the node. False if there was nothing to end."""
    traces = (home.record(name), home.lock(name))
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
