"""Chunks and rows by table and shard: what there is to process of a run, and what has been. Each function
is a part of a transaction.
"""

from sqlalchemy import ColumnElement, Connection, Table, select

from kopitiam.contracts.stages import ByTable, FlowByStage, RowFlow, Volume
from kopitiam.registry.runs import get_run
from kopitiam.registry.schema import shard_expectations, shard_progress, stage_progress


def expectations(connection: Connection, run: str) -> ByTable:
    get_run(connection, run)
    return expected(connection, run)


def progress(connection: Connection, run: str) -> ByTable:
    get_run(connection, run)
    return processed(connection, run)


def expected(connection: Connection, run: str) -> ByTable:
    return by_run(connection, shard_expectations, shard_expectations.c.run == run).get(run, {})


def processed(connection: Connection, run: str) -> ByTable:
    return by_run(connection, shard_progress, shard_progress.c.run == run).get(run, {})


def by_run(connection: Connection, volumes: Table, is_wanted: ColumnElement[bool]) -> dict[str, ByTable]:
    of = volumes.c
    query = select(of.run, of.table_name, of.shard, of.chunks, of.rows).where(is_wanted)
    found: dict[str, dict[str, dict[int, Volume]]] = {}
    for run, table, shard, chunks, rows in connection.execute(query.order_by(of.table_name, of.shard)):
        found.setdefault(run, {}).setdefault(table, {})[shard] = Volume(chunks, rows)
    return dict(found)


def stage_flows(connection: Connection, run: str) -> FlowByStage:
    of = stage_progress.c
    query = select(of.stage, of.shard, of.rows_in, of.rows_out).where(of.run == run)
    flows: dict[str, dict[int, RowFlow]] = {}
    for stage, shard, rows_in, rows_out in connection.execute(query.order_by(of.stage, of.shard)):
        flows.setdefault(stage, {})[shard] = RowFlow(rows_in, rows_out)
    return flows
