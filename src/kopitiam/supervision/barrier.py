"""The barrier state machine: messages and registry snapshots in, decisions out. No clock, bus or registry.

Messages may be lost, repeated, reordered or forged, so they decide nothing. When they report that all stages
of a run have ended, the machine requests a snapshot (`ReadSnapshot`) and decides by that. A snapshot replaces
everything learned from earlier messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kopitiam.contracts.messages import TableEnd, WorkerEnd, WorkerStats
from kopitiam.contracts.progress import Snapshot, contradiction, is_processed
from kopitiam.contracts.runs import RunState

MAX_RUNS = 2_000
MAX_CLOSED = 10_000
ProgressMessage = TableEnd | WorkerStats | WorkerEnd
Event = ProgressMessage | Snapshot


@dataclass(frozen=True)
class ReadSnapshot:
    """Messages indicate that a decision is due: read the run's snapshot from the registry."""

    run: str


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


Decision = ReadSnapshot | OpenBarrier | FailRun | Forward


class Barriers:
    """The barriers of all runs.

    A run is *closed* once its barrier is open or the run is over; later messages about it are ignored. The
    number of tracked runs is bounded: reconciliation brings a snapshot of a run that was dropped.
    """

    def __init__(self, max_runs: int = MAX_RUNS, max_closed: int = MAX_CLOSED) -> None:
        self._max_runs = max_runs
        self._max_closed = max_closed
        self._runs: dict[str, _Progress] = {}  # least recently updated first
        self._closed: dict[str, None] = {}

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs whose progress is tracked."""
        return tuple(self._runs)

    def handle(self, event: Event) -> list[Decision]:
        if isinstance(event, Snapshot):
            return self._on_snapshot(event)
        if event.run in self._closed:
            return []
        progress = self._track(event.run)
        progress.on_message(event)
        if progress.is_snapshot_requested or not progress.needs_snapshot:
            return []
        progress.is_snapshot_requested = True
        return [ReadSnapshot(event.run)]

    def _on_snapshot(self, snapshot: Snapshot) -> list[Decision]:
        """Repeat earlier decisions: if the run is still before its barrier, they were not committed."""
        is_final = snapshot.state is RunState.FINAL
        if is_final or snapshot.state.is_over:
            self._close(snapshot.run)
            return [Forward(snapshot.run)] if is_final else []
        self._closed.pop(snapshot.run, None)
        self._track(snapshot.run).on_snapshot(snapshot)
        if (reason := contradiction(snapshot)) is not None:
            return [FailRun(snapshot.run, reason)]
        return [OpenBarrier(snapshot.run)] if is_processed(snapshot) else []

    def _track(self, run: str) -> "_Progress":
        progress = self._runs.pop(run, None) or _Progress()
        self._runs[run] = progress
        if len(self._runs) > self._max_runs:
            del self._runs[next(iter(self._runs))]
        return progress

    def _close(self, run: str) -> None:
        self._runs.pop(run, None)
        self._closed.pop(run, None)
        self._closed[run] = None
        if len(self._closed) > self._max_closed:
            del self._closed[next(iter(self._closed))]


@dataclass
class _Progress:
    """Progress of one run before its barrier."""

    stages: Mapping[str, tuple[str, ...]] | None = None  # by table; unknown before the first snapshot
    due: dict[str, Mapping[int, int]] = field(default_factory=dict)  # chunks of sealed tables, by shard
    ended: set[tuple[str, int]] = field(default_factory=set)  # stage and shard
    is_contradicted: bool = False  # a message reported more chunks than expected
    is_snapshot_requested: bool = False  # and has not arrived yet

    def on_message(self, message: ProgressMessage) -> None:
        match message:
            case TableEnd(table=table, shards=shards):
                self.due[table] = {shard: chunks for shard, (chunks, _) in shards.items()}
            case WorkerEnd(stage=stage, shard=shard):
                self.ended.add((stage, shard))
            case WorkerStats(stage=stage, shard=shard, expected=int(expected), processed=processed):
                self.is_contradicted |= processed > expected
                if processed == expected:
                    self.ended.add((stage, shard))

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.stages = snapshot.stages
        self.due = {
            table: {shard: volume.chunks for shard, volume in shards.items()}
            for table, shards in snapshot.expected.items()
        }
        self.ended = {
            (stage, shard)
            for table, stages in snapshot.stages.items()
            for shard, volume in snapshot.expected.get(table, {}).items()
            if snapshot.processed.get(table, {}).get(shard) == volume
            for stage in stages
        }
        self.is_contradicted = self.is_snapshot_requested = False

    @property
    def needs_snapshot(self) -> bool:
        """True on an apparent end or contradiction, and once to learn the stages of the run."""
        return self.is_contradicted or bool(self.due and self.stages is None) or self._has_ended

    @property
    def _has_ended(self) -> bool:
        if self.stages is None or self.stages.keys() - self.due.keys():
            return False
        return all(
            not chunks or (stage, shard) in self.ended
            for table, stages in self.stages.items()
            for shard, chunks in self.due[table].items()
            for stage in stages
        )
