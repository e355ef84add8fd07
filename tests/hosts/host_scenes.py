"""Clients that upload runs from a machine of their own while faults are made, and what each fault did."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from decisions import stale_decisions
from host_faults import Fault, Moment
from host_fleets import CLIENTS, HostFleet

from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam_chaos.observer import RegistryObserver
from trickle import Trickle, check_answers, rows_of

CHUNK_ROWS = 600
WORK_SECONDS = 300.0  # a run must be answered within this time after a fault
_LOOK_SECONDS = 0.1


@dataclass
class Outcome:
    """What a fault did. Seconds to notice are counted from its begin, the others from its end."""

    noticed: float | None = None  # None: too short or too slight to be noticed
    works: float = 0.0  # all chunks, ENDs or answers that were due are there
    whole: float = 0.0  # all nodes are alive
    longest_call: float = 0.0
    stale_decisions: int = 0
    leaders_at_once: int = 0  # that acted under one epoch
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        noticed = "not noticed" if self.noticed is None else f"noticed after {self.noticed:.1f} s"
        return (
            f"{noticed}, works after {self.works:.1f} s, whole after {self.whole:.1f} s, longest call "
            f"{self.longest_call:.1f} s, decisions under a stale epoch {self.stale_decisions}, leaders at "
            f"once under one epoch {self.leaders_at_once}"
        )


@dataclass
class Account:
    """What the faults of a scene did, to its runs and one by one."""

    runs: int = 0
    wrongly_ended: int = 0
    rows_lost: int = 0
    rows_double: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs verified, wrongly ended {self.wrongly_ended}, rows lost {self.rows_lost}, "
            f"double {self.rows_double}"
        )

    @property
    def violations(self) -> list[str]:
        """What must never happen, whatever fails."""
        is_sound = (self.wrongly_ended, self.rows_lost, self.rows_double) == (0, 0, 0)
        violations = [] if is_sound else [str(self)]
        for fault, outcome in self.outcomes.items():
            violations += [f"{fault}: {complaint}" for complaint in outcome.complaints]
            if outcome.stale_decisions or outcome.leaders_at_once > 1:
                violations.append(f"{fault}: {outcome}")
        return violations


def play(
    fleet: HostFleet,
    faults: Sequence[Fault],
    folders: Sequence[Path],
    out: Path,
    chunk_rows: int = CHUNK_ROWS,
) -> Account:
    """Upload one run for each folder, make the faults one after the other meanwhile, and check all answers,
    which are then in `out`, in folders 0, 1, ….

    Faults of an upload or an election come first, then at most one at the seal and one at the final step.
    """
    steps = 1 + sum(fault.moment in ("upload", "election") for fault in faults)
    scene = _Scene(fleet, folders, chunk_rows, steps)
    with contextlib.closing(scene):
        scene.start()
        account = Account(len(folders), outcomes={str(fault): scene.hit(fault) for fault in faults})
        scene.fetch(out)
        for folder, rows in zip(folders, scene.rows(), strict=True):
            expected = rows_of(folder)
            account.rows_lost += sum(max(0, expected[table] - rows[table]) for table in rows)
            account.rows_double += sum(max(0, rows[table] - expected[table]) for table in rows)
        account.wrongly_ended = scene.wrongly_ended()
    for number, folder in enumerate(folders):
        check_answers(folder, out / str(number))
    return account


class _Scene:
    """The uploads of all clients. They are made in steps, so that some chunks are sent during each fault, and
    some after it."""

    def __init__(self, fleet: HostFleet, folders: Sequence[Path], chunk_rows: int, steps: int) -> None:
        self._fleet, self._clients = fleet, fleet.machine(CLIENTS)
        self._uploads = [
            self._clients.inside(
                lambda folder=folder: Trickle(fleet.address_urls, folder, chunk_rows, WORK_SECONDS)
            ).result()
            for folder in folders
        ]
        self._sending: list[Future[None]] = []
        self._steps, self._step = steps, 0

    def start(self) -> None:
        for upload in self._uploads:
            upload.quota = 0
            self._sending.append(self._clients.inside(upload.send))
        self._begin_step()
        self._end_step()
        self._fleet.wait(self._is_processed, "processing the uploads", WORK_SECONDS)

    def hit(self, fault: Fault) -> Outcome:
        """Reach the moment of the fault, make it, and wait until all work and all nodes are there again."""
        outcome, fleet = Outcome(), self._fleet
        before, during, after, is_done = self._parts(fault.moment)
        before()
        for upload in self._uploads:
            upload.transport.longest_request = 0.0
        with fleet.watching() as watch, _noticing(watch, outcome):
            with fault.made(fleet):
                during()
                time.sleep(fault.seconds)
            ended = time.monotonic()
            after()
            fleet.wait(is_done, f"working after {fault}", WORK_SECONDS)
            outcome.works = time.monotonic() - ended
            fleet.await_whole()
            outcome.whole = time.monotonic() - ended
            outcome.complaints = watch.violations()
            outcome.leaders_at_once = max(map(len, watch.actions_by_epoch().values()), default=0)
        outcome.longest_call = max(upload.transport.longest_request for upload in self._uploads)
        outcome.stale_decisions = len(stale_decisions(fleet))
        fleet.note(f"{fault}: {outcome}")
        return outcome

    def fetch(self, out: Path) -> None:
        """Finish the uploads, and fetch all answers."""
        self._finish()
        for sending in self._sending:
            sending.result(WORK_SECONDS)
        fetching = [
            self._clients.inside(lambda upload=upload, folder=out / str(number): upload.fetch(folder))
            for number, upload in enumerate(self._uploads)
        ]
        for fetched in fetching:
            fetched.result(WORK_SECONDS)

    def rows(self) -> list[dict[str, int]]:
        return [self._clients.inside(upload.rows).result(WORK_SECONDS) for upload in self._uploads]

    def wrongly_ended(self) -> int:
        return sum(state in (RunState.FAILED, RunState.ENDED) for state in self._states())

    def close(self) -> None:
        for upload in self._uploads:
            upload.close()

    # -- moments

    def _parts(
        self, moment: Moment
    ) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None], Callable[[], bool]]:
        """What is done before the fault, during it and after it, and whether that has worked."""
        match moment:
            case "upload":
                return _nothing, self._begin_step, self._end_step, self._is_processed
            case "election":
                return self._kill_leader, self._begin_step, self._end_step, self._is_processed
            case "seal":
                return self._send_all, self._allow_end, _nothing, self._is_sealed
            case "final":
                return self._await_final, _nothing, _nothing, self._is_answered

    def _begin_step(self) -> None:
        """Allow all chunks of the next step but the last."""
        self._step += 1
        for upload in self._uploads:
            upload.quota = self._due(upload) - 1

    def _end_step(self) -> None:
        for upload in self._uploads:
            upload.quota = self._due(upload)

    def _due(self, upload: Trickle) -> int:
        return max(1, upload.pieces * self._step // (self._steps + 1))

    def _is_processed(self) -> bool:
        return all(self._fleet.processed(upload.run) >= self._due(upload) for upload in self._uploads)

    def _kill_leader(self) -> None:
        leader = next(node for node in self._fleet.nodes().values() if node.leader)
        self._fleet.kill(leader.name)

    def _send_all(self) -> None:
        """All chunks, and no END."""
        for upload in self._uploads:
            upload.may_end.clear()
            upload.may_finish.set()
        self._fleet.wait(
            lambda: all(upload.sent == upload.pieces for upload in self._uploads), "sending the last chunks"
        )

    def _allow_end(self) -> None:
        for upload in self._uploads:
            upload.may_end.set()

    def _is_sealed(self) -> bool:
        return all(sending.done() for sending in self._sending)

    def _finish(self) -> None:
        for upload in self._uploads:
            upload.may_finish.set()
            upload.may_end.set()

    def _await_final(self) -> None:
        """Wait until the first of the runs is in its final step."""
        self._finish()
        early = (RunState.OPEN, RunState.SEALED)
        self._fleet.wait(
            lambda: any(state not in early for state in self._states()), "making answers", WORK_SECONDS
        )

    def _is_answered(self) -> bool:
        states = self._states()
        return bool(states) and all(state.is_over for state in states)

    def _states(self) -> list[RunState]:
        """None while the registry is unavailable."""
        with contextlib.suppress(Unavailable):
            return [self._fleet.registry.get_run(upload.run).state for upload in self._uploads]
        return []


def _nothing() -> None:
    pass


@contextlib.contextmanager
def _noticing(watch: RegistryObserver, outcome: Outcome) -> Iterator[None]:
    """Record when the fleet first shows the fault: a dead node, an alarm, a new process, a new leader."""
    begun, is_over = time.monotonic(), threading.Event()
    leader, epochs = watch.leader, {node.name: node.epoch for node in watch.nodes.values()}

    def is_shown() -> bool:
        nodes = watch.nodes.values()
        return watch.leader != leader or any(
            node.state != "alive" or node.alarm or node.epoch > epochs.get(node.name, 0) for node in nodes
        )

    def look() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            if is_shown():
                outcome.noticed = time.monotonic() - begun
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
