"""What a run before its barrier looks like in the registry, and what follows from that alone. No I/O.

The registry judges by this in the transaction that opens a barrier or fails a run. The leader does so
beforehand, to know when to ask.
"""

from dataclasses import dataclass

from kopitiam.contracts.runs import RunState
from kopitiam.contracts.stages import STAGES_OF_TABLE, ByTable, Volume


@dataclass(frozen=True)
class Snapshot:
    """A run as the registry had it, all of one moment."""

    run: str
    state: RunState
    expected: ByTable  # sealed tables only
    processed: ByTable
    pending: int  # chunks in the log that no batch has passed yet


def contradiction(snapshot: Snapshot) -> str | None:
    """The registry is the truth, but what it tells may still be wrong: a chunk lost or counted twice."""
    is_sealed = snapshot.state is RunState.SEALED
    if unknown := (snapshot.expected.keys() | snapshot.processed.keys()) - STAGES_OF_TABLE.keys():
        return f"no stage takes table {min(unknown)}"
    if is_sealed and (missing := STAGES_OF_TABLE.keys() - snapshot.expected.keys()):
        return f"the run is sealed, yet table {min(missing)} has had no END"
    for table, shard, due, done in _by_shard(snapshot):
        if is_wrong(done, due):
            return f"table {table}, shard {shard}: {comparison(due, done)}"
        if is_sealed and snapshot.pending == 0 and done.chunks < due.chunks:
            return f"table {table}, shard {shard}: {comparison(due, done)}, and none is pending"
    return None


def is_processed(snapshot: Snapshot) -> bool:
    """While a chunk is pending it cannot be all, whatever the counters say."""
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
    """Fewer chunks may still come; all of them with other rows, or more, can never be right."""
    return done.chunks > due.chunks or (done.chunks == due.chunks and done.rows != due.rows)


def missing_text(snapshot: Snapshot) -> str:
    """The figures of a run whose barrier cannot open yet."""
    open_tables = sorted(STAGES_OF_TABLE.keys() - snapshot.expected.keys())
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
