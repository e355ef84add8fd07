"""The tables of a run: durable chunks and rows, END, and the chunks and rows that every shard has to process
or has processed. Also the account of a whole run.
"""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, Table, exists, func, insert, select, update

from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.progress import ByTable, FlowByStage, RowFlow, Volume
from kopitiam.contracts.runs import Run, RunFigures, RunState, Span, TableState, beyond, gaps
from kopitiam.questions.layout import LAYOUT
from kopitiam.registry.batches import partials_of
from kopitiam.registry.chunks import durable_spans
from kopitiam.registry.records import Ended, EndOutcome, RunAccount, require_counts, require_table
from kopitiam.registry.results import published
from kopitiam.registry.runs import get_run, get_version, lock_run, move_run, touch
from kopitiam.registry.schema import chunks, run_tables, shard_expectations, shard_progress, stage_progress
from kopitiam.registry.transactions import RegistryBase

STATE_COLUMNS = (
    run_tables.c.chunks,
    run_tables.c.rows,
    run_tables.c.rejected,
    run_tables.c.expected_chunks,
    run_tables.c.expected_rows,
    run_tables.c.sealed,
)


class TableTransactions(RegistryBase):
    def table_states(self, run: str) -> dict[str, TableState]:
        """Return the state of each table of the run, in the order of the layout."""

        def states(connection: Connection) -> dict[str, TableState]:
            get_run(connection, run)
            return _table_states(connection, run)

        return self._read(states)

    def ended_tables(self, runs: Iterable[str]) -> dict[str, dict[str, bool]]:
        """Return, for each of these runs that is known, whether each of its tables has ended."""
        names = sorted(set(runs))
        query = select(run_tables.c.run, run_tables.c.table_name, run_tables.c.sealed)

        def ended(connection: Connection) -> dict[str, dict[str, bool]]:
            tables: dict[str, dict[str, bool]] = {}
            for run, table, is_sealed in connection.execute(query.where(run_tables.c.run.in_(names))):
                tables.setdefault(run, {})[table] = is_sealed
            return tables

        return self._read(ended) if names else {}

    def run_account(self, run: str) -> RunAccount:
        """Return figures, expectations, progress, partials and answers of a run, in one snapshot."""

        def account(connection: Connection) -> RunAccount:
            return RunAccount(
                RunFigures(
                    get_run(connection, run), _table_states(connection, run), get_version(connection, run)
                ),
                expected(connection, run),
                processed(connection, run),
                tuple(partials_of(connection, run)),
                published(connection, run),
                _stage_flows(connection, run),
            )

        return self._read(account)

    def end_table(self, run: str, table: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        """Seal the table if exactly these chunks and rows are durable, and with the last table the run.

        `rejected` rows were rejected by the client and are in no chunk; they are counted once. Repeating the
        call with the same figures changes nothing. Raises `RunOver` if the run failed or was ended.
        """
        require_table(table)
        require_counts(chunks=chunks, rows=rows, rejected=rejected)
        return self._write(lambda c: _end_table(c, run, table, (chunks, rows), rejected, now=self._clock(c)))

    def expectations(self, run: str) -> ByTable:
        """Return the chunks and rows to process: for each sealed table and every shard, zero included."""

        def expectations(connection: Connection) -> ByTable:
            get_run(connection, run)
            return expected(connection, run)

        return self._read(expectations)

    def progress(self, run: str) -> ByTable:
        """Return the chunks and rows processed, for shards with any. They stay when the run is over."""

        def progress(connection: Connection) -> ByTable:
            get_run(connection, run)
            return processed(connection, run)

        return self._read(progress)


def expected(connection: Connection, run: str) -> ByTable:
    return volumes_by_run(connection, shard_expectations, shard_expectations.c.run == run).get(run, {})


def processed(connection: Connection, run: str) -> ByTable:
    return volumes_by_run(connection, shard_progress, shard_progress.c.run == run).get(run, {})


def volumes_by_run(
    connection: Connection, volumes: Table, condition: ColumnElement[bool]
) -> dict[str, ByTable]:
    columns = volumes.c
    query = select(columns.run, columns.table_name, columns.shard, columns.chunks, columns.rows).where(
        condition
    )
    by_run: dict[str, dict[str, dict[int, Volume]]] = {}
    for run, table, shard, chunk_count, rows in connection.execute(
        query.order_by(columns.table_name, columns.shard)
    ):
        by_run.setdefault(run, {}).setdefault(table, {})[shard] = Volume(chunk_count, rows)
    return dict(by_run)


def _stage_flows(connection: Connection, run: str) -> FlowByStage:
    columns = stage_progress.c
    query = select(columns.stage, columns.shard, columns.rows_in, columns.rows_out).where(columns.run == run)
    flows: dict[str, dict[int, RowFlow]] = {}
    for stage, shard, rows_in, rows_out in connection.execute(query.order_by(columns.stage, columns.shard)):
        flows.setdefault(stage, {})[shard] = RowFlow(rows_in, rows_out)
    return flows


def _table_states(connection: Connection, run: str) -> dict[str, TableState]:
    query = select(run_tables.c.table_name, *STATE_COLUMNS).where(run_tables.c.run == run)
    states = {row[0]: TableState(*row[1:]) for row in connection.execute(query)}
    return {table: states[table] for table in LAYOUT if table in states}


def _table_state(connection: Connection, run: str, table: str) -> TableState:
    query = select(*STATE_COLUMNS).where(run_tables.c.run == run, run_tables.c.table_name == table)
    return TableState(*connection.execute(query).one())


def _end_table(
    connection: Connection, run: str, table: str, figures: tuple[int, int], rejected: int, *, now: float
) -> Ended:
    """`figures` are the chunks and rows in END, `rejected` the rows that are in no chunk."""
    current = lock_run(connection, run)
    if current.state in (RunState.FAILED, RunState.ENDED):
        raise RunOver(f"run {run} is {current.state}")
    state = _table_state(connection, run, table)
    if state.sealed:
        is_same = (state.expected_chunks, state.expected_rows) == figures
        return Ended("sealed" if is_same else "conflict", state.chunks, state.rows, *figures)
    ended = compare_end(durable_spans(connection, run, table), state, figures)
    if ended.sealed:
        _seal(connection, current, table, ended, rejected=rejected, now=now)
    return ended


def compare_end(durable: tuple[Span, ...], state: TableState, figures: tuple[int, int]) -> Ended:
    """Compare the durable chunks and rows with those of END."""
    expected_chunks, expected_rows = figures
    missing, extra = gaps(durable, expected_chunks), beyond(durable, expected_chunks)
    outcome: EndOutcome
    if missing:
        outcome = "missing"
    elif extra:
        outcome = "extra"
    else:
        outcome = "sealed" if state.rows == expected_rows else "rows_differ"
    return Ended(outcome, state.chunks, state.rows, *figures, missing, extra)


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
        move_run(connection, run.run, RunState.SEALED, now)


def _expect(connection: Connection, run: Run, table: str) -> None:
    """Store the expectations of every shard, zero included, so that empty shards close too."""
    shard = (chunks.c.number % run.shards).label("shard")
    query = (
        select(shard, func.count(), func.sum(chunks.c.rows))
        .where(chunks.c.run == run.run, chunks.c.table_name == table)
        .group_by(shard)
    )
    durable = {shard: (count, int(rows)) for shard, count, rows in connection.execute(query)}
    by_shard = [(shard, *durable.get(shard, (0, 0))) for shard in range(run.shards)]
    connection.execute(
        insert(shard_expectations),
        [
            {"run": run.run, "table_name": table, "shard": shard, "chunks": count, "rows": rows}
            for shard, count, rows in by_shard
        ],
    )
