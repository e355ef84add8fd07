"""Monitors of a fleet that die at crash points, one after the other, while a client uploads a run.

The leader and its successor are started with `KOPI_CRASH_AT`. The leader dies at its point, the successor
dies as it takes over, and the third monitor revives both.
"""

import contextlib
import itertools
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from clients import trickling
from fleets import PATIENCE_SECONDS, Fleet

from trickle import Trickle, rows_of

# The points of the coordinator that a leader passes: force_end.announced belongs to gateways.
COORDINATOR_POINTS = (
    "barrier.decided",
    "barrier.opened",
    "barrier.forwarded",
    "force_end.begun",
    "force_end.recorded",
)
# The points that every successor passes: it takes the lead, and finds the old leader dead.
TAKEOVER_POINTS = ("epoch.requested", "epoch.taken", "revival.decided", "revival.recorded")
_LEASE_SECONDS = 2.0  # of the run whose client is gone
_DYING_SECONDS = 60.0
_TRIES = 3


@dataclass(frozen=True)
class Act:
    """Where the leader dies, and where the monitor dies that succeeds it."""

    leader_point: str
    successor_point: str

    @property
    def points(self) -> tuple[str, str]:
        return self.leader_point, self.successor_point

    def __str__(self) -> str:
        return f"{self.leader_point}, then {self.successor_point}"


@dataclass(frozen=True)
class Outcome:
    """Exit codes of the monitors, and row counts of the client's run."""

    exit_codes: dict[str, int]  # by crash point
    rows_lost: int
    rows_double: int
    seconds_to_recover: float  # from the leader's death until all nodes are alive and monitor-3 leads

    @property
    def points_reached(self) -> list[str]:
        return [point for point, code in self.exit_codes.items() if code == -signal.SIGKILL]


def all_acts() -> list[Act]:
    """The fewest acts that reach every point."""
    return list(map(Act, COORDINATOR_POINTS, itertools.cycle(TAKEOVER_POINTS)))


def sampled_acts(seed: int, count: int) -> list[Act]:
    """Acts in which no point comes twice."""
    chance = random.Random(seed)
    return list(map(Act, chance.sample(COORDINATOR_POINTS, count), chance.sample(TAKEOVER_POINTS, count)))


def play(fleet: Fleet, act: Act, data: Path, out: Path, chunk_rows: int = 100) -> Outcome:
    """Fails if an armed monitor does not die or is not revived, or if an answer of the run is wrong."""
    with trickling(fleet, data, out, chunk_rows) as upload:
        armed = _start_armed(fleet, act)
        abandoned = _trigger_point(fleet, act, upload)
        codes = {point: fleet.exit_code(armed[point], _DYING_SECONDS) for point in [act.leader_point]}
        died_at = time.monotonic()
        codes[act.successor_point] = fleet.exit_code(armed[act.successor_point], _DYING_SECONDS)
        fleet.await_whole()
        recovered = time.monotonic() - died_at
        if abandoned is not None:
            fleet.wait(lambda: fleet.registry.get_run(abandoned).state == "ended", "ending the lost run")
    sent, there = rows_of(data), _rows_of_run(fleet, upload.run)
    fleet.note(f"{act}: all nodes alive again after {recovered:.1f} s")
    return Outcome(
        codes,
        sum(max(0, sent[table] - there[table]) for table in there),
        sum(max(0, there[table] - sent[table]) for table in there),
        recovered,
    )


def _start_armed(fleet: Fleet, act: Act) -> dict[str, int]:
    """Process ids by crash point. The successor starts when the leader leads: it must not lead before."""
    leader, successor = fleet.settings.nodes.monitors[-1], fleet.settings.nodes.monitors[-2]
    stops = [
        fleet.start_command("node", "stop", name, "--config", str(fleet.config))
        for name in (successor, leader)
    ]
    for stop in stops:
        _, errors = stop.communicate(timeout=PATIENCE_SECONDS)
        assert stop.returncode == 0, errors
    leading = _start_until_armed(fleet, leader, act.leader_point)
    fleet.wait(lambda: fleet.leaders() == [leader], "led by the armed monitor")
    succeeding = _start_until_armed(fleet, successor, act.successor_point)
    return {act.leader_point: leading, act.successor_point: succeeding}


def _start_until_armed(fleet: Fleet, name: str, point: str) -> int:
    """Returns the process id. On a busy machine a monitor may get no announcement in time, request an epoch,
    and so reach its point at once: then it is started again."""
    for _ in range(_TRIES):
        command = fleet.start_command(
            *("node", "start", name, "--config", str(fleet.config)), KOPI_CRASH_AT=point
        )
        _, errors = command.communicate(timeout=PATIENCE_SECONDS)
        pid = fleet.pid_of(name)
        if pid is not None and _is_armed(pid):
            return pid
        fleet.note(f"{name}: died at {point} before its time: {errors.strip()[-200:]}")
        fleet.do("node", "stop", name)
    raise AssertionError(f"{name} never stayed armed: {fleet.status_text()}")


def _is_armed(pid: int) -> bool:
    """False for a process that a monitor started as its replacement, and for one that has ended."""
    with contextlib.suppress(psutil.Error):
        return "KOPI_CRASH_AT" in psutil.Process(pid).environ()
    return False


def _trigger_point(fleet: Fleet, act: Act, upload: Trickle) -> str | None:
    """Let the client's run reach its barrier, or open a run whose client lease expires; returns its id."""
    if act.leader_point.startswith("barrier."):
        upload.may_finish.set()
        return None
    like = fleet.registry.get_run(upload.run)
    opened = fleet.registry.open_run(
        *(like.questions, "abandoned", like.owner),
        idempotency_key=None,
        lease_seconds=_LEASE_SECONDS,
        shards=like.shards,
    )
    return opened.run.run


def _rows_of_run(fleet: Fleet, run: str) -> dict[str, int]:
    tables = httpx.get(f"{fleet.url}/api/v1/runs/{run}", timeout=30).raise_for_status().json()["tables"]
    return {name: int(table["rows"]) for name, table in tables.items()}
