"""Faults of a fleet with RabbitMQ and PostgreSQL on this machine: wrong clocks, and kills by `kopi chaos`."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from clients import Trickle, check_answers
from fleets import Fleet, adopting

from debian import skip_or_fail
from kopitiam.contracts.crash_points import POINTS
from kopitiam.synthetic import generate
from rabbitmq_server import ensure_installed
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import MONITOR_POINTS, Session
from tools.reliability.shims import compiled

_SERVICES = ("postgresql", "rabbitmq")
_OFFSETS = (5, -5, 30, -30, 61, -61, 3600, -3600)
_LEASE_SECONDS = 15
_NODES = ("gateway-1", "monitor-3", "pipeline-1")
_WATCH_SECONDS = 25.0  # longer than a lease, and than a node may be silent


@contextlib.contextmanager
def _fleet(folder: Path, more: str = "") -> Iterator[Fleet]:
    ensure_installed()
    with adopting():
        fleet = Fleet(folder, _SERVICES)
        fleet.config.write_text(fleet.config.read_text().replace("[gateway]\n", f"[gateway]\n{more}"))
        try:
            fleet.up()
            fleet.await_whole()
            yield fleet
        finally:
            fleet.end()


def clocks(session: Session) -> Iterator[Measurement]:
    """One node at a time is started with a clock that is off, while a run is uploaded slowly."""
    folder, chance = session.new_folder("clocks"), random.Random(session.seed)
    shim = str(compiled("shift_clock", folder))
    generate(folder / "data", 0.0001, session.seed)
    offsets = _OFFSETS if not session.is_sample else chance.sample(_OFFSETS, 1)
    ended = revived = differing = 0
    with _fleet(folder / "fleet", f"lease_seconds = {_LEASE_SECONDS}\n") as fleet:
        for position, offset in enumerate(offsets):
            name = _NODES[position % 2] if abs(offset) < 3600 else chance.choice(_NODES[:2])
            with _clock_off(fleet, name, offset, shim):
                client = Trickle(fleet, folder / "data")
                with contextlib.closing(client):
                    out = folder / f"answers-{position}"
                    was_ended, changed, is_exact = _watched(fleet, client, folder / "data", out)
            ended, revived, differing = ended + was_ended, revived + changed, differing + (not is_exact)
            session.say(f"{name} {offset:+d} s: run ended {was_ended}, nodes revived {changed}")
    yield Measurement(
        "clock of one node off by " + ", ".join(f"{offset:+d}" for offset in offsets) + " s",
        f"{len(offsets)} times, {_WATCH_SECONDS:.0f} s each, leases of {_LEASE_SECONDS} s",
        session.seed,
        (
            none_of("runs wrongly ended", ended),
            none_of("nodes wrongly revived", revived),
            none_of("wrong answers", differing),
        ),
    )


def _watched(fleet: Fleet, client: Trickle, data: Path, out: Path) -> tuple[int, int, bool]:
    """Whether the run was ended, how many nodes were replaced, and whether the answers are exact."""
    before = fleet.pids()
    sending = threading.Thread(target=client.send, daemon=True)
    sending.start()
    deadline = time.monotonic() + _WATCH_SECONDS
    while time.monotonic() < deadline and fleet.registry.get_run(client.run).state.value == "open":
        time.sleep(0.2)
    was_ended = fleet.registry.get_run(client.run).state.value == "ended"
    changed = sum(pid != before[name] for name, pid in fleet.pids().items())
    client.may_finish.set()
    if was_ended:
        return 1, changed, True
    sending.join(60)
    client.fetch(out)
    return 0, changed, _is_exact(data, out)


@contextlib.contextmanager
def _clock_off(fleet: Fleet, name: str, offset: int, shim: str) -> Iterator[None]:
    """The node has another clock while the block lasts; its monotonic clock is left alone."""
    settings = {"LD_PRELOAD": shim, "CLOCK_SHIFT_SECONDS": str(offset)}
    fleet.do("node", "stop", name)
    _start(fleet, name, **settings)
    fleet.await_whole()
    try:
        yield
    finally:
        fleet.do("node", "stop", name)
        _start(fleet, name)
        fleet.await_whole()


def _start(fleet: Fleet, name: str, **settings: str) -> None:
    command = fleet.start_command("node", "start", name, "--config", str(fleet.config), **settings)
    _, words = command.communicate(timeout=120)
    assert command.returncode == 0, words


def monitor_points(session: Session) -> Iterator[Measurement]:
    """The leader dies at each of its crash points; for those of a revival a node is killed first."""
    points = [point for point in POINTS if point.startswith(MONITOR_POINTS)]
    if not points:
        skip_or_fail("no crash point is one of monitors")
    folder = session.new_folder("monitor-points")
    generate(folder / "data", 0.0001, session.seed)
    reached, whole, differing = 0, list[float](), 0
    with _fleet(folder / "fleet") as fleet:
        for point in points[: session.pick(len(points), 1)]:
            client = Trickle(fleet, folder / "data")
            with contextlib.closing(client):
                sending = threading.Thread(target=client.send, daemon=True)
                sending.start()
                is_reached, seconds = _leader_dies_at(fleet, point)
                client.may_finish.set()
                sending.join(120)
                client.fetch(folder / f"answers-{point}")
                differing += not _is_exact(folder / "data", folder / f"answers-{point}")
            reached += is_reached
            whole.append(seconds)
            session.say(f"{point}: {'reached' if is_reached else 'not reached'}, whole after {seconds:.1f} s")
    yield Measurement(
        "kill -9 at each crash point of the leader",
        f"{reached} kills at {len(whole)} points",
        session.seed,
        (
            at_least("points reached", reached, len(whole)),
            none_of("wrong answers", differing),
            at_most("to recover", max(whole), 90, "s"),
        ),
    )


def _leader_dies_at(fleet: Fleet, point: str) -> tuple[bool, float]:
    """Whether the leader passed the point, and seconds until all nodes live and the highest monitor leads."""
    leader = fleet.settings.nodes.monitors[-1]
    fleet.do("node", "stop", leader)
    words = ("node", "start", leader, "--config", str(fleet.config))
    fleet.start_command(*words, KOPI_CRASH_AT=point).communicate(timeout=120)  # it may die before it is ready
    armed = fleet.pid_of(leader)
    began = time.monotonic()
    if point.startswith("revival.") and armed is not None:
        fleet.wait(lambda: fleet.leaders() == [leader], "led by the armed monitor")
        fleet.kill("gateway-1")
    is_reached = armed is None or _is_gone_within(fleet, leader, armed, 60)
    fleet.await_whole()
    return is_reached, time.monotonic() - began


def _is_gone_within(fleet: Fleet, name: str, pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if fleet.pid_of(name) != pid:
            return True
        time.sleep(0.1)
    return False


def _is_exact(data: Path, out: Path) -> bool:
    with contextlib.suppress(AssertionError):
        check_answers(data, out)
        return True
    return False


def kills(session: Session) -> Iterator[Measurement]:
    """`kopi chaos` with its own report: what it killed, and what its clients got."""
    count, folder = session.pick(12, 4), session.new_folder("kills")
    with _fleet(folder) as fleet:
        report = fleet.do(
            *("chaos", "--seed", str(session.seed), "--kills", str(count), "--freeze"),
            *("--clients", "2", "--scale", "0.0001", "--patience", "200"),
        )
    noticed = [each["noticed_seconds"] for each in report["timeline"] if each["noticed_seconds"] is not None]
    back = [each["revived_seconds"] for each in report["timeline"] if each["revived_seconds"] is not None]
    runs = report["runs"]
    yield Measurement(
        "nodes and services of a fleet killed or frozen by kopi chaos",
        f"{report['strikes']['made']} strikes, {runs['made']} runs",
        session.seed,
        (
            at_least("runs verified exact", runs["verified"], runs["made"]),
            none_of("rows lost", report["rows"]["lost"]),
            none_of("rows double", report["rows"]["doubled"]),
            none_of("complaints", len(report["complaints"])),
            at_most("to notice", max(noticed, default=0), 30, "s"),
            at_most("to recover", max(back, default=0), 90, "s"),
        ),
        notes=tuple(str(each)[:300] for each in report["complaints"]),
    )
