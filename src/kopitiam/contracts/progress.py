"""Progress of a run: chunks and rows by table and shard, rows into and out of each stage, and the rules by
which a barrier opens or a run fails. No I/O.

A chunk passes all stages of its table in one batch. The registry applies the rules in the transaction that
opens a barrier or fails a run; the leader applies them beforehand, to know when to call it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kopitiam.contracts.runs import RunState


@dataclass(frozen=True)
class Volume:
    """Chunk and row counts."""

    chunks: int = 0
    rows: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(self.chunks + other.chunks, self.rows + other.rows)


@dataclass(frozen=True)
class RowFlow:
    """Rows into a stage, and rows out of it."""

    rows_in: int = 0
    rows_out: int = 0

    def __add__(self, other: "RowFlow") -> "RowFlow":
        return RowFlow(self.rows_in + other.rows_in, self.rows_out + other.rows_out)


ByTable = Mapping[str, Mapping[int, Volume]]  # table → shard → volume
FlowByStage = Mapping[str, Mapping[int, RowFlow]]  # stage → shard → rows


def total_by_shard(volumes: ByTable, tables: tuple[str, ...]) -> dict[int, Volume]:
    """Return the sum of the volumes of several tables, by shard."""
    shards = sorted({shard for table in tables for shard in volumes.get(table, {})})
    return {
        shard: sum((volumes.get(table, {}).get(shard, Volume()) for table in tables), Volume())
        for shard in shards
    }


@dataclass(frozen=True)
class Snapshot:
    """The progress of a run, in one snapshot of the registry."""

    run: str
    state: RunState
    stages: Mapping[str, tuple[str, ...]]  # before the barrier, of each table that the run needs
    expected: ByTable  # sealed tables only
    processed: ByTable
    pending: int  # chunks in the log that no batch has read yet
    flaw: str = ""  # why this version cannot process the run


def contradiction(snapshot: Snapshot) -> str | None:
    """Return why the figures can never become right (a chunk was lost or counted twice); None if they can."""
    is_sealed = snapshot.state is RunState.SEALED
    if snapshot.flaw:
        return snapshot.flaw
    if unknown := (snapshot.expected.keys() | snapshot.processed.keys()) - snapshot.stages.keys():
        return f"the run does not need table {min(unknown)}"
    if is_sealed and (missing := snapshot.stages.keys() - snapshot.expected.keys()):
        return f"the run is sealed, yet table {min(missing)} has had no END"
    for table, shard, due, done in _by_shard(snapshot):
        if is_wrong(done, due):
            return f"table {table}, shard {shard}: {comparison(due, done)}"
        if is_sealed and snapshot.pending == 0 and done.chunks < due.chunks:
            return f"table {table}, shard {shard}: {comparison(due, done)}, and none is pending"
    return None


def is_processed(snapshot: Snapshot) -> bool:
    """Whether every chunk that the run expects has been processed, and none is pending."""
    return (
        snapshot.state is RunState.SEALED
        and snapshot.pending == 0
        and all(done == due for _, _, due, done in _by_shard(snapshot))
    )


def _by_shard(snapshot: Snapshot) -> list[tuple[str, int, Volume, Volume]]:
    """Table, shard, expected, processed."""
    return [
        (table, shard, shards.get(shard, Volume()), done.get(shard, Volume()))
        for table, shards in snapshot.expected.items()
        for done in [snapshot.processed.get(table, {})]
        for shard in sorted(shards.keys() | done.keys())
    ]


def is_wrong(done: Volume, due: Volume) -> bool:
    """Whether there are more chunks than expected, or as many with other rows. Fewer may become right."""
    return done.chunks > due.chunks or (done.chunks == due.chunks and done.rows != due.rows)


def missing_text(snapshot: Snapshot) -> str:
    """The figures of a run whose barrier cannot open yet."""
    open_tables = sorted(snapshot.stages.keys() - snapshot.expected.keys())
    due = sum((due for _, _, due, _ in _by_shard(snapshot)), Volume())
    done = sum((done for _, _, _, done in _by_shard(snapshot)), Volume())
    unsealed = f"; without END: {', '.join(open_tables)}" if open_tables else ""
    return f"{comparison(due, done)}, {count_text(snapshot.pending, 'chunk')} pending{unsealed}"


def comparison(due: Volume, done: Volume) -> str:
    return f"expected {volume_text(due)}, processed {volume_text(done)}"


def volume_text(volume: Volume) -> str:
    return f"{count_text(volume.chunks, 'chunk')} with {count_text(volume.rows, 'row')}"


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
