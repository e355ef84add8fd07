"""Processes and their children: how they are, which belong together, and how they end.

A family is known by what its members carry, which children inherit: no record need be right for that.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import psutil

from kopitiam.contracts.errors import ServiceError

Condition = Literal["running", "frozen", "gone"]
Family = Callable[[], list[psutil.Process]]
_KILL_SECONDS = 10.0
_LOOK_SECONDS = 0.02


def condition(process: psutil.Process | None) -> Condition:
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
        return condition(psutil.Process(pid)) != "gone"
    except psutil.NoSuchProcess:
        return False


def carrying(variable: str, value: str) -> list[psutil.Process]:
    """All that have it in their environment."""
    return _all_that(lambda process: process.environ().get(variable) == value)


def working_in(folder: Path) -> list[psutil.Process]:
    """All that have it as their working folder: PostgreSQL's children write over their environment."""
    wanted = str(folder.resolve())
    return _all_that(lambda process: process.cwd() == wanted)


def ask_to_end(process: psutil.Process | None, wish: signal.Signals, seconds: float) -> None:
    """One that is frozen would not hear it."""
    if process is None or condition(process) != "running":
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(wish)
    _wait_gone([process], seconds)


def end_at_once(name: str, family: Family) -> None:
    """As by kill -9, and again for those that were being born."""
    deadline = time.monotonic() + _KILL_SECONDS
    while members := family():
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in members)
            raise ServiceError(f"{name}: does not end even when killed: process {pids}")
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_gone(members, seconds=1)


def memory_of(family: Iterable[psutil.Process]) -> int:
    total = 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _wait_gone(processes: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(condition(process) != "gone" for process in processes) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _all_that(is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """But for this process and those that it descends from."""
    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in spared and is_wanted(process) and condition(process) != "gone":
                found.append(process)
    return found
