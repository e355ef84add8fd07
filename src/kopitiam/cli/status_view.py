"""A run's status as people see it: its tables and its stages, with bars."""

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.text import Text

from kopitiam.cli.bars import Figure, barred, name_text, printable
from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus


def status_lines(found: RunStatus, console: Console) -> Iterator[Text]:
    name = f"run {found.run}{f' ({name_text(found.label)})' if found.label else ''}"
    yield Text(f"{name}: {found.state}, since {moment(found.created_at)}")
    if found.error:
        yield Text(printable(found.error), "red")
    yield Text("tables", "bold")
    tables = [_table(name, table) for name, table in found.tables.items()]
    yield from barred(console, tables, most=1.0)
    if found.stages:
        yield Text("stages", "bold")
        yield from barred(console, list(_stages(found)), most=1.0)


def progress_line(found: RunStatus) -> str:
    """The one figure that grows steadily until the answers are there."""
    done, expected = chunks_processed(found)
    return f"{done:,} of {expected:,} chunks processed · {found.state}"


def chunks_processed(found: RunStatus) -> tuple[int, int]:
    """Chunks that have passed the stages of their table, each counted once, and chunks in all as far as that
    is known: those that END expects, or those that have come."""
    tables = found.tables.values()
    known = (each.chunks if each.expected_chunks is None else each.expected_chunks for each in tables)
    return sum(table.processed for table in tables), sum(known)


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _table(name: str, table: TableStatus) -> Figure:
    chunks = f"{_of(table.chunks, table.expected_chunks)} chunks"
    rejected = f"{table.rejected:,} rejected"
    rows = f"{_of(table.rows, table.expected_rows)} rows"
    return Figure(
        (name, "sealed" if table.sealed else "open", chunks, rejected),
        rows,
        _share(table.rows, table.expected_rows),
    )


def _stages(found: RunStatus) -> Iterator[Figure]:
    """Each as a whole, and, where there are several shards, shard by shard."""
    for stage, shards in found.stages.items():
        whole = _sum(list(shards.values()))
        yield _stage(stage, whole)
        if len(shards) > 1:
            yield from (_stage(f"  shard {shard}", work) for shard, work in shards.items())


def _stage(name: str, work: StageStatus) -> Figure:
    rows = f"{work.rows_out:,} of {work.rows:,} rows went on"
    chunks = f"{_of(work.processed, work.expected)} chunks"
    return Figure((name, rows), chunks, _share(work.processed, work.expected))


def _sum(shards: list[StageStatus]) -> StageStatus:
    expected = [shard.expected for shard in shards]
    return StageStatus(
        role=shards[0].role,
        expected=None if None in expected else sum(count or 0 for count in expected),
        processed=sum(shard.processed for shard in shards),
        rows=sum(shard.rows for shard in shards),
        rows_out=sum(shard.rows_out for shard in shards),
    )


def _of(done: int, expected: int | None) -> str:
    return f"{done:,}" if expected is None else f"{done:,} of {expected:,}"


def _share(done: int, expected: int | None) -> float:
    """Of nothing, all is done."""
    if expected is None:
        return 0.0
    return done / expected if expected else 1.0
