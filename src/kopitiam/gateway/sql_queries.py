"""SQL queries of clients: requests to pipelines, their states, and their removal.

A query lives in storage only. Any gateway can answer for it, and what a crash leaves is removed by its age.
"""

from collections.abc import Iterator
from dataclasses import asdict

from kopitiam.contracts.data_api import RunSql, SqlColumn, SqlQuery
from kopitiam.contracts.data_sets import DataSet
from kopitiam.contracts.errors import DataMissing, DataSetNotFound
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import SQL_QUEUE, SqlRequest
from kopitiam.contracts.sql_queries import (
    KEPT_SECONDS,
    QUERY_ID,
    QueryOutcome,
    QueryRecord,
    QueryRequest,
    SqlState,
    created_at,
    new_query_id,
)
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.problems import Refusal, without_paths
from kopitiam.questions.sql import check_sql
from kopitiam.registry.records import Fence
from kopitiam.results.query_files import QueryFolder
from kopitiam.storage.port import Key

MOST_ACTIVE = 4  # queries of one data set that wait or run
MOST_KEPT = 50  # queries of one data set whose results are kept
_PREFIX = "query="


def send_query(gateway: Gateway, data_set: DataSet, request: RunSql) -> SqlQuery:
    """Check a query, store it, and ask a pipeline to compute it.

    Raises QuestionError or DataMissing if it cannot be answered, DataSetNotFound without such a version, and
    Refusal: 422 for limits above those of the gateway, 429 if too many queries of the data set are under way.
    """
    checked = check_sql(request.sql)
    limits = gateway.settings.gateway
    version = data_set.newest if request.version is None else request.version
    _require_tables(gateway, data_set, version, checked.tables)
    record = QueryRequest(
        data_set.name,
        request.sql,
        version,
        _limit("seconds", request.seconds, limits.sql_seconds),
        _limit("rows", request.rows, limits.sql_rows),
    )
    _make_room(gateway, data_set)
    query = new_query_id(gateway.registry.now())
    folder = QueryFolder(gateway.storage, data_set.id, query)
    folder.write_request(record)
    announce(gateway, folder)
    return _view(QueryRecord(query, record, None, None), "waiting", None)


def announce(gateway: Gateway, folder: QueryFolder) -> None:
    """Ask a pipeline for the query. Repeating it has no effect once a pipeline has begun."""
    message = SqlRequest(query=folder.query, data_set=folder.data_set)
    gateway.outbox.put(f"query {folder.query}", lambda: gateway.bus.send(SQL_QUEUE, message))


def query_state(gateway: Gateway, folder: QueryFolder) -> SqlQuery:
    """Return the query as it stands. Raises Refusal (404) if it is unknown or removed."""
    record = folder.read()
    if record is None:
        raise Refusal(404, "no_query", "no such query, or its result is removed after an hour")
    return _view(record, *_state(gateway, record))


def finished_query(gateway: Gateway, folder: QueryFolder) -> tuple[QueryOutcome, Key]:
    """Return the outcome of a query that is done, and the file with its result.

    Raises Refusal: 404 as `query_state`, 409 if it is not over yet, 422 with the reason if it failed.
    """
    view, record = query_state(gateway, folder), folder.read()
    if view.state == "failed":
        raise Refusal(422, "sql", view.error or "the query failed")
    if record is None or record.outcome is None:
        raise Refusal(409, "running", "the query is not over yet", state=view.state)
    return record.outcome, folder.key / record.outcome.result


def remove_expired(gateway: Gateway) -> None:
    """Remove queries that were kept for an hour, and those of data sets that are gone."""
    folders = list(_folders(gateway, "*"))
    if not folders:
        return
    now, known = gateway.registry.now(), {data_set.id for data_set in gateway.registry.data_sets(None)}
    for folder in folders:
        is_gone = folder.data_set not in known and not gateway.storage.is_shared
        if is_gone or now - created_at(folder.query) > KEPT_SECONDS:
            folder.remove()


def remove_queries(gateway: Gateway, data_set: str) -> None:
    """Remove all queries of a data set that is dropped; pipelines cancel those that run."""
    for folder in _folders(gateway, data_set):
        folder.remove()


def _make_room(gateway: Gateway, data_set: DataSet) -> None:
    folders = list(_folders(gateway, data_set.id))
    active = 0
    for folder in folders:
        if (record := folder.read()) is not None:
            active += _state(gateway, record)[0] in ("waiting", "running")
    if active >= MOST_ACTIVE:
        message = f"{active} queries over data set {data_set.name} are under way; try again when one is over"
        raise Refusal(429, "too_many_queries", message)
    for folder in folders[: max(0, len(folders) - MOST_KEPT + 1)]:
        folder.remove()


def _folders(gateway: Gateway, data_set: str) -> Iterator[QueryFolder]:
    """Yield the folders of queries, oldest first in each data set."""
    for key in gateway.storage.find(f"{KEYS.queries_of(data_set)}/{_PREFIX}*"):
        query = key.name.removeprefix(_PREFIX)
        if QUERY_ID.fullmatch(query):
            yield QueryFolder(gateway.storage, key.parent.name.removeprefix("data="), query)


def _require_tables(gateway: Gateway, data_set: DataSet, version: int, tables: tuple[str, ...]) -> None:
    name = data_set.name
    files = gateway.registry.version_files(data_set.id, version)
    if not files:
        message = f"data set {name}: version {version} does not exist, or is not kept any more"
        raise DataSetNotFound(message if version else f"data set {name} has no version yet")
    if lacking := set(tables) - {file.table for file in files}:
        raise DataMissing(f"data set {name} has no file of table {min(lacking)}; send one with --data {name}")


def _limit(name: str, value: int | None, most: int) -> int:
    if value is not None and value > most:
        raise Refusal(422, "invalid", f"{name}: {value:,}; this gateway allows up to {most:,}")
    return most if value is None else value


def _state(gateway: Gateway, record: QueryRecord) -> tuple[SqlState, str | None]:
    is_alive = True
    if record.outcome is None and (begun := record.begun) is not None:
        is_alive = gateway.registry.holds(Fence(begun.pipeline, begun.epoch, begun.holder))
    return record.state(gateway.registry.now(), is_alive)


def _view(record: QueryRecord, state: SqlState, error: str | None) -> SqlQuery:
    outcome, request = record.outcome, record.request
    return SqlQuery(
        query=record.query,
        data=request.data,
        version=request.version,
        sql=request.sql,
        state=state,
        created_at=created_at(record.query),
        seconds=round(outcome.seconds, 3) if outcome else None,
        columns=[SqlColumn.model_validate(asdict(column)) for column in outcome.columns] if outcome else [],
        rows=outcome.rows if outcome else 0,
        cut=bool(outcome and outcome.is_cut),
        error=without_paths(error) if error else None,
        again=state == "failed" and outcome is None,
    )
