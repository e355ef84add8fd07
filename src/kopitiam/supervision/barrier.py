"""When the barrier of a run opens, and when a run cannot be right any more: messages and snapshots of the
registry in, decisions out. No clock, bus or registry in here.

Messages only make it fast. They may be lost, repeated, reordered and forged, and runs may be forgotten to
bound memory: a decision that a message led to is only a question to the registry, and the next snapshot
takes the place of all that messages said. Counters are absolute, so that of each shard of a stage only the
furthest report counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kopitiam.contracts.barriers import (
    Snapshot,
    comparison,
    contradiction,
    count_text,
    is_processed,
    is_wrong,
    volume_text,
)
from kopitiam.contracts.messages import TableEnd, WorkerEnd, WorkerStats
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.stages import (
    BEHIND_BARRIER,
    STAGES_OF_TABLE,
    TABLES_OF_STAGE,
    ByStage,
    Volume,
    expected_by_stage,
    processed_by_stage,
)

MOST_RUNS = 2_000
MOST_CLOSED = 10_000

Shards = Mapping[int, Volume]
Worker = tuple[str, int]  # a shard of a stage


@dataclass(frozen=True)
class OpenBarrier:
    run: str


@dataclass(frozen=True)
class FailRun:
    run: str
    reason: str


@dataclass(frozen=True)
class Forward:
    """The barrier is open already, but BARRIER_FORWARD may have been lost."""

    run: str


Event = TableEnd | WorkerStats | WorkerEnd | Snapshot
Decision = OpenBarrier | FailRun | Forward


class Barriers:
    """The barriers of all runs.

    A run is *closed* once its barrier is known to be open or the run to be over: from then on its messages
    are late ones, and must not bring it back.
    """

    def __init__(self, most_runs: int = MOST_RUNS, most_closed: int = MOST_CLOSED) -> None:
        self._most_runs = most_runs
        self._most_closed = most_closed
        self._runs: dict[str, _Figures] = {}  # the one heard of longest ago comes first
        self._closed: dict[str, None] = {}

    @property
    def runs(self) -> tuple[str, ...]:
        """Those that figures are kept of."""
        return tuple(self._runs)

    def handle(self, event: Event) -> list[Decision]:
        if isinstance(event, Snapshot):
            return self._on_snapshot(event)
        if event.run in self._closed or _is_behind(event):
            return []
        figures = self._figures(event.run)
        if figures.failure is not None:
            return []
        figures.hear(event)
        if figures.failure is not None:
            return [FailRun(event.run, figures.failure)]
        if figures.is_decided or not figures.are_complete:
            return []
        figures.is_decided = True
        return [OpenBarrier(event.run)]

    def _on_snapshot(self, snapshot: Snapshot) -> list[Decision]:
        """Decides again what was decided before: if the run is still before its barrier, it was not done."""
        is_final = snapshot.state is RunState.FINAL
        if is_final or snapshot.state.is_over:
            self._close(snapshot.run)
            return [Forward(snapshot.run)] if is_final else []
        figures = self._figures(snapshot.run)
        figures.see(snapshot)
        if figures.failure is not None:
            return [FailRun(snapshot.run, figures.failure)]
        if not is_processed(snapshot):
            return []
        figures.is_decided = True
        return [OpenBarrier(snapshot.run)]

    def _figures(self, run: str) -> "_Figures":
        figures = self._runs.pop(run, None)
        if figures is None:
            figures = _Figures(is_decided=run in self._closed)
            self._closed.pop(run, None)
        self._runs[run] = figures
        if len(self._runs) > self._most_runs:
            oldest = next(iter(self._runs))
            if self._runs.pop(oldest).is_settled:
                self._close(oldest)
        return figures

    def _close(self, run: str) -> None:
        self._runs.pop(run, None)
        self._closed.pop(run, None)
        self._closed[run] = None
        if len(self._closed) > self._most_closed:
            del self._closed[next(iter(self._closed))]


class _Figures:
    """What is known of one run before its barrier. Whatever comes before END is kept until END judges it."""

    def __init__(self, is_decided: bool) -> None:
        self.is_decided = is_decided
        self._is_late = is_decided  # known to be past its barrier: messages are late ones
        self.failure: str | None = None
        self._expected: dict[str, Shards] = {}
        self._due: ByStage = {}
        # Reports of as many chunks but other rows are kept side by side, so that their order is no matter.
        self._furthest: dict[Worker, frozenset[Volume]] = {}
        self._claims: dict[Worker, int] = {}

    @property
    def is_settled(self) -> bool:
        return self.is_decided or self.failure is not None

    @property
    def are_complete(self) -> bool:
        return len(self._expected) == len(STAGES_OF_TABLE) and all(
            self._reports((stage, shard)) == {due}
            for stage, shards in self._due.items()
            for shard, due in shards.items()
        )

    def hear(self, message: TableEnd | WorkerStats | WorkerEnd) -> None:
        if isinstance(message, TableEnd):
            self._end(message.table, {shard: Volume(*told) for shard, told in message.shards.items()})
            return
        # A worker that has ended has processed as many as it expects.
        claim = message.processed if isinstance(message, WorkerEnd) else message.expected
        self._report((message.stage, message.shard), Volume(message.processed, message.rows), claim)

    def see(self, snapshot: Snapshot) -> None:
        """Takes the place of all that messages said, right or wrong. They are sent after what they tell of
        was committed, so that a snapshot read after a message came has that too."""
        self.failure = contradiction(snapshot)
        self.is_decided = self._is_late
        self._expected = dict(snapshot.expected)
        self._claims.clear()
        self._furthest = {
            (stage, shard): frozenset({processed})
            for stage, shards in processed_by_stage(snapshot.processed).items()
            for shard, processed in shards.items()
        }
        self._judge_all()

    def _end(self, table: str, shards: Shards) -> None:
        if table not in STAGES_OF_TABLE:
            self._fail(f"END came for table {table}, which no stage takes")
            return
        known = self._expected.setdefault(table, shards)
        for shard in sorted(known.keys() | shards.keys()):
            before, now = known.get(shard, Volume()), shards.get(shard, Volume())
            if before != now:
                both = f"{volume_text(before)}, and then {volume_text(now)}"
                self._fail(f"table {table}, shard {shard}: END told {both}")
        self._judge_all()

    def _report(self, worker: Worker, told: Volume, claim: int | None) -> None:
        if told.chunks > self._chunks(worker):
            self._furthest[worker] = frozenset({told})
        elif told.chunks == self._chunks(worker):
            self._furthest[worker] = self._furthest.get(worker, frozenset()) | {told}
        if claim is not None and claim != (before := self._claims.setdefault(worker, claim)):
            wanted = f"it expected {count_text(before, 'chunk')}, and then {claim:,}"
            self._fail(f"{_name(worker)}: {wanted}; processed {volume_text(told)}")
        self._judge(worker)

    def _judge_all(self) -> None:
        self._due = expected_by_stage(self._expected)
        for worker in sorted(self._furthest):
            self._judge(worker)

    def _judge(self, worker: Worker) -> None:
        """Against END, once it has come: where that told of nothing, nothing is expected."""
        stage, shard = worker
        if stage in TABLES_OF_STAGE and stage not in self._due:
            return
        due = self._due.get(stage, {}).get(shard, Volume())
        claim = self._claims.get(worker, due.chunks)
        for told in self._reports(worker):
            if is_wrong(told, due):
                self._fail(f"{_name(worker)}: {comparison(due, told)}")
            elif claim != due.chunks:
                self._fail(
                    f"{_name(worker)}: {comparison(due, told)}, and it expects {count_text(claim, 'chunk')}"
                )

    def _reports(self, worker: Worker) -> frozenset[Volume]:
        return self._furthest.get(worker, frozenset({Volume()}))

    def _chunks(self, worker: Worker) -> int:
        return next(iter(self._reports(worker))).chunks

    def _fail(self, reason: str | None) -> None:
        self.failure = self.failure or reason


def _is_behind(event: TableEnd | WorkerStats | WorkerEnd) -> bool:
    return not isinstance(event, TableEnd) and event.stage in BEHIND_BARRIER


def _name(worker: Worker) -> str:
    return f"stage {worker[0]}, shard {worker[1]}"
