"""Faults of a fleet with RabbitMQ and PostgreSQL: wrong clocks, killed monitors, `kopi chaos`."""

import contextlib
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleets import Fleet, adopting
from monitor_crashes import all_acts, play, sampled_acts

from kopitiam.synthetic import generate
from rabbitmq_server import ensure_installed
from tools.reliability.clock_cases import ClockCase, all_cases, sampled_cases
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import Session
from tools.reliability.shims import compile_shim
from trickle import Trickle, check_answers

_SERVICES = ("postgresql", "rabbitmq")
_SCALE, _CHUNK_ROWS = 0.001, 1000  # 14,600 transactions
_LEASE_SECONDS = 15
_WATCH_SECONDS = 25.0  # longer than a lease, and than the heartbeat timeout


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
    """Starts one node at a time with a wrong clock while a run is uploaded slowly."""
    folder = session.new_folder("clocks")
    shim = _Shim(compile_shim("shift_clock", folder), folder / "shift")
    generate(folder / "data", _SCALE, session.seed)
    cases = sampled_cases(session.seed) if session.is_sample else all_cases()
    ended = revived = differing = 0
    with _fleet(folder / "fleet", f"lease_seconds = {_LEASE_SECONDS}\n") as fleet:
        for position, case in enumerate(cases):
            with _wrong_clock(fleet, case, shim):
                client = Trickle(fleet.url, folder / "data", _CHUNK_ROWS)
                with contextlib.closing(client):
                    out = folder / f"answers-{position}"
                    was_ended, changed, is_exact = _watched(fleet, client, folder / "data", out)
            ended, revived, differing = ended + was_ended, revived + changed, differing + (not is_exact)
            session.say(f"{case}: run ended {was_ended}, nodes revived {changed}")
    yield Measurement(
        "clock of one node off by 5 s to an hour, or jumping",
        f"{len(cases)} cases, {_WATCH_SECONDS:.0f} s each, leases of {_LEASE_SECONDS} s",
        session.seed,
        (
            none_of("runs wrongly ended", ended),
            none_of("nodes wrongly revived", revived),
            none_of("wrong answers", differing),
        ),
        notes=("; ".join(map(str, cases)),),
    )


def _watched(fleet: Fleet, client: Trickle, data: Path, out: Path) -> tuple[int, int, bool]:
    """Returns whether the run was ended (0 or 1), nodes replaced, and whether the answers are exact."""
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


@dataclass(frozen=True)
class _Shim:
    """Shifts the wall clock of the processes that load it, by the seconds in its file."""

    library: Path
    file: Path

    @property
    def settings(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT_FILE": str(self.file)}

    def shift(self, seconds: int) -> None:
        with self.file.open("r+b" if self.file.exists() else "wb") as file:  # processes have it mapped
            file.write(struct.pack("l", seconds))


@contextlib.contextmanager
def _wrong_clock(fleet: Fleet, case: ClockCase, shim: _Shim) -> Iterator[None]:
    """Gives the node a wrong wall clock while the block runs; its monotonic clock stays right."""
    shim.shift(0 if case.is_jumping else case.offsets[0])
    fleet.do("node", "stop", case.node)
    _start(fleet, case.node, **shim.settings)
    fleet.await_whole()
    is_over = threading.Event()
    jumping = threading.Thread(target=_jump, args=(shim, case.offsets, is_over), daemon=True)
    if case.is_jumping:
        jumping.start()
    try:
        yield
    finally:
        is_over.set()
        if case.is_jumping:
            jumping.join()
        fleet.do("node", "stop", case.node)
        _start(fleet, case.node)
        fleet.await_whole()


def _jump(shim: _Shim, offsets: tuple[int, ...], is_over: threading.Event) -> None:
    for offset in offsets:
        if is_over.wait(_WATCH_SECONDS / (len(offsets) + 1)):
            return
        shim.shift(offset)


def _start(fleet: Fleet, name: str, **settings: str) -> None:
    command = fleet.start_command("node", "start", name, "--config", str(fleet.config), **settings)
    _, errors = command.communicate(timeout=120)
    assert command.returncode == 0, errors


def monitor_points(session: Session) -> Iterator[Measurement]:
    """Kills the leader and then its successor at crash points while a run is uploaded."""
    folder = session.new_folder("monitor-points")
    generate(folder / "data", _SCALE, session.seed)
    acts = sampled_acts(session.seed, 2) if session.is_sample else all_acts()
    outcomes, wrong = [], list[str]()
    with _fleet(folder / "fleet") as fleet:
        for position, act in enumerate(acts):
            try:
                outcome = play(fleet, act, folder / "data", folder / f"answers-{position}", _CHUNK_ROWS)
            except AssertionError as error:
                wrong.append(f"{act}: {str(error).partition(chr(10))[0][:300]}")
                session.say(wrong[-1])
                fleet.up()
                fleet.await_whole()
                continue
            outcomes.append(outcome)
            session.say(f"{act}: whole after {outcome.seconds_to_recover:.1f} s")
    points = {point for act in acts for point in act.points}
    reached = {point for outcome in outcomes for point in outcome.points_reached}
    yield Measurement(
        "kill -9 at each crash point of monitors",
        f"{sum(len(outcome.points_reached) for outcome in outcomes)} kills at {len(points)} points, "
        "a run under way at each",
        session.seed,
        (
            at_least("points reached", len(reached), len(points)),
            none_of("rows lost", sum(outcome.rows_lost for outcome in outcomes)),
            none_of("rows double", sum(outcome.rows_double for outcome in outcomes)),
            none_of("deaths without exact answers or revival", len(wrong)),
            at_most(
                "to recover", max((outcome.seconds_to_recover for outcome in outcomes), default=0), 90, "s"
            ),
        ),
        notes=("; ".join(map(str, acts)), *wrong),
    )


def _is_exact(data: Path, out: Path) -> bool:
    with contextlib.suppress(AssertionError):
        check_answers(data, out)
        return True
    return False


def kills(session: Session) -> Iterator[Measurement]:
    """Runs `kopi chaos` and takes the figures from its report."""
    count, folder = session.pick(12, 4), session.new_folder("kills")
    with _fleet(folder) as fleet:
        report = fleet.do(
            *("chaos", "--seed", str(session.seed), "--kills", str(count), "--freeze"),
            *("--clients", "2", "--scale", str(_SCALE), "--patience", "200"),
        )
    noticed = [
        strike["noticed_seconds"] for strike in report["timeline"] if strike["noticed_seconds"] is not None
    ]
    back = [
        strike["revived_seconds"] for strike in report["timeline"] if strike["revived_seconds"] is not None
    ]
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
        notes=tuple(str(complaint)[:300] for complaint in report["complaints"]),
    )
