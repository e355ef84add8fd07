"""Nodes as detached processes: started once however often one asks, ended with all their children."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from kopitiam.contracts.errors import ConfigError, KopitiamError, ServiceError
from kopitiam.contracts.messages import NodeKind
from kopitiam.fleet.families import Family, ask_to_end, carrying, condition, end_at_once, is_alive
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.records import read_record, write_record
from kopitiam.system.files import locked
from kopitiam.system.logs import last_words, rotate

MARK = "KOPI_FLEET_NODE"
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
    family: Family | None = None  # where its processes are not known by their mark


@dataclass(frozen=True)
class Launched:
    name: str
    pid: int
    child: subprocess.Popen[bytes] | None  # None if it ran already
    log: Path
    log_start: int

    def require_life(self) -> None:
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
            self.require_life()

    def settle_when(self, is_ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.require_life()
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
        life = condition(record.process()) if record else "gone"
        log = home.log(program.name)
        if record and life == "running":
            return Launched(program.name, record.pid, None, log, 0)
        if life == "gone" or program.kind in _HOLD_A_PORT:
            end_at_once(program.name, program.family or (lambda: family_of(home, program.name)))
        return _spawn(home, program, log)


def is_running(home: FleetHome, name: str) -> bool:
    record = read_record(home, name)
    return record is not None and condition(record.process()) == "running"


def family_of(home: FleetHome, name: str) -> list[psutil.Process]:
    """The node's process and all it has brought forth, those of earlier lives included."""
    return carrying(MARK, str(home.record(name)))


def stop(home: FleetHome, name: str) -> bool:
    """Leaves no process, record, lock or temporary file, but the log. False if there was nothing to stop."""

    def end() -> None:
        record = read_record(home, name)
        ask_to_end(record.process() if record else None, signal.SIGTERM, STOP_SECONDS)
        end_at_once(name, lambda: family_of(home, name))

    return stopping(home, name, lambda: family_of(home, name), end)


def stopping(home: FleetHome, name: str, family: Family, end: Callable[[], None]) -> bool:
    """`end` is called with nobody else starting or stopping the node. False if there was nothing to end."""
    traces = (home.record(name), home.lock(name))
    if not any(path.exists() for path in traces) and not family():
        return False
    with locked(home.lock(name)):
        was_alive = bool(family())
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
                env={**os.environ, MARK: str(home.record(program.name))},
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
