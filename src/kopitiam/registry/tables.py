"""The tables of a run: what is durable of each, its END, and what every shard then has to process. Each
function is a part of a transaction.
"""

from sqlalchemy import Connection, exists, func, insert, select, update

from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.runs import Run, RunFigures, RunState, Span, TableState, beyond, gaps
from kopitiam.questions.layout import LAYOUT
from kopitiam.registry.chunks import durable_spans
from kopitiam.registry.partials import list_partials
from kopitiam.registry.records import Ended, EndOutcome, RunAccount
from kopitiam.registry.results import published
from kopitiam.registry.runs import get_run, locked, move, touch, version
from kopitiam.registry.schema import chunks, run_tables, shard_expectations
from kopitiam.registry.volumes import expected, processed, stage_flows

STATE_COLUMNS = (
    run_tables.c.chunks,
    run_tables.c.rows,
    run_tables.c.rejected,
    run_tables.c.expected_chunks,
    run_tables.c.expected_rows,
    run_tables.c.sealed,
)


def table_states(connection: Connection, run: str) -> dict[str, TableState]:
    get_run(connection, run)
    query = select(run_tables.c.table_name, *STATE_COLUMNS).where(run_tables.c.run == run)
    found = {row[0]: TableState(*row[1:]) for row in connection.execute(query)}
    return {table: found[table] for table in LAYOUT if table in found}


def figures(connection: Connection, run: str) -> RunFigures:
    return RunFigures(get_run(connection, run), table_states(connection, run), version(connection, run))


def account(connection: Connection, run: str) -> RunAccount:
    return RunAccount(
        figures(connection, run),
        expected(connection, run),
        processed(connection, run),
        tuple(list_partials(connection, run)),
        published(connection, run),
        stage_flows(connection, run),
    )


def end_table(
    connection: Connection, run: str, table: str, expected: tuple[int, int], *, rejected: int, now: float
) -> Ended:
    """`expected` are the chunks and rows that END tells of, `rejected` the rows that are in no chunk."""
    found = locked(connection, run)
    if found.state in (RunState.FAILED, RunState.ENDED):
        raise RunOver(f"run {run} is {found.state}")
    state = _state(connection, run, table)
    if state.sealed:
        is_same = (state.expected_chunks, state.expected_rows) == expected
        return Ended("sealed" if is_same else "conflict", state.chunks, state.rows, *expected)
    ended = _compare(durable_spans(connection, run, table), state, expected)
    if ended.sealed:
        _seal(connection, found, table, ended, rejected=rejected, now=now)
    return ended


def _state(connection: Connection, run: str, table: str) -> TableState:
    query = select(*STATE_COLUMNS).where(run_tables.c.run == run, run_tables.c.table_name == table)
    return TableState(*connection.execute(query).one())


def _compare(durable: tuple[Span, ...], state: TableState, expected: tuple[int, int]) -> Ended:
    expected_chunks, expected_rows = expected
    missing, extra = gaps(durable, expected_chunks), beyond(durable, expected_chunks)
    outcome: EndOutcome
    if missing:
        outcome = "missing"
    elif extra:
        outcome = "extra"
    else:
        outcome = "sealed" if state.rows == expected_rows else "rows_differ"
    return Ended(outcome, state.chunks, state.rows, *expected, missing, extra)


def _seal(connection: Connection, run: Run, table: str, ended: Ended, *, rejected: int, now: float) -> None:
    connection.execute(
        update(run_tables)
        .where(run_tables.c.run == run.run, run_tables.c.table_name == table)
        .values(
            sealed=True,
            expected_chunks=ended.expected_chunks,
            expected_rows=ended.expected_rows,
            rejected=run_tables.c.rejected + rejected,
        )
    )
    _expect(connection, run, table)
    unsealed = exists().where(run_tables.c.run == run.run, run_tables.c.sealed.is_(False))
    if connection.scalar(select(unsealed)):
        touch(connection, run.run)
    else:
        move(connection, run.run, RunState.SEALED, now)


def _expect(connection: Connection, run: Run, table: str) -> None:
    """Every shard learns what it will get, also if that is nothing, so that empty shards close too."""
    shard = (chunks.c.number % run.shards).label("shard")
    query = (
        select(shard, func.count(), func.sum(chunks.c.rows))
        .where(chunks.c.run == run.run, chunks.c.table_name == table)
        .group_by(shard)
    )
    durable = {shard: (count, int(rows)) for shard, count, rows in connection.execute(query)}
    expected = [(shard, *durable.get(shard, (0, 0))) for shard in range(run.shards)]
    connection.execute(
        insert(shard_expectations),
        [
            {"run": run.run, "table_name": table, "shard": shard, "chunks": count, "rows": rows}
            for shard, count, rows in expected
        ],
    )
