"""Calls for SQL over a data set: send a query, wait for it, read or download its result, remove it."""

import asyncio
import io
import shutil
import time
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.api_types import Text
from kopitiam.contracts.data_api import RemovedSql, RunSql, SqlPage, SqlQuery
from kopitiam.contracts.data_sets import DataSet
from kopitiam.contracts.sql_queries import QUERY_ID
from kopitiam.gateway.context import CallerDep, GatewayDep
from kopitiam.gateway.problems import refusals
from kopitiam.gateway.routes.data import Name, Owner, owner_to_read
from kopitiam.gateway.routes.results import FILE_TYPES, XLSX, made_file
from kopitiam.gateway.routes.rows import Limit, Offset, answer_page
from kopitiam.gateway.sql_queries import announce, finished_query, query_state, send_query
from kopitiam.results.query_files import QueryFolder, write_csv, write_json

router = APIRouter(prefix="/api/v1/data/{name}/sql", tags=["SQL"])
_MEDIA_TYPES = FILE_TYPES | {"xlsx": XLSX}
_REFUSALS = refusals(409)
_LONGEST_WAIT = 20.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_REPEAT_SECONDS = 3.0  # a message to the pipelines may be lost
Form = Literal["csv", "json", "parquet", "xlsx"]


def _data_set(name: Name, gateway: GatewayDep, caller: CallerDep, owner: Owner = "") -> DataSet:
    return gateway.registry.data_set(owner_to_read(caller, owner), name)


DataSetDep = Annotated[DataSet, Depends(_data_set)]


def _folder(
    data_set: DataSetDep,
    gateway: GatewayDep,
    query: Annotated[str, Path(pattern=f"^{QUERY_ID.pattern}$", description="Id of the query.")],
) -> QueryFolder:
    return QueryFolder(gateway.storage, data_set.id, query)


FolderDep = Annotated[QueryFolder, Depends(_folder)]


@router.post("", status_code=202)
def run_sql(request: RunSql, data_set: DataSetDep, gateway: GatewayDep) -> SqlQuery:
    """Run one SELECT over the tables of a version, with limits on time and rows; amounts are DECIMAL.

    The result is kept for an hour. A query that reads anything else is refused with 422 and the reason.
    """
    return send_query(gateway, data_set, request)


@router.get(
    "/{query}.{form}",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in _MEDIA_TYPES.values()}}, **_REFUSALS},
)
def get_query_file(folder: FolderDep, data_set: DataSetDep, form: Form, gateway: GatewayDep) -> Response:
    """The result as csv, json, parquet or xlsx."""
    outcome, key = finished_query(gateway, folder)

    def write(path: FilePath) -> None:
        with gateway.storage.open(key) as source:
            if form == "xlsx":
                from kopitiam.results.workbook import write_result_workbook  # noqa: PLC0415 - few need it

                write_result_workbook(path, source, outcome)
                return
            with path.open("wb") as out:
                if form == "csv":
                    write_csv(out, source)
                elif form == "json":
                    write_json(out, source, outcome)
                else:
                    shutil.copyfileobj(io.BufferedReader(source), out)

    headers = {"Content-Disposition": f'attachment; filename="{data_set.name}-sql.{form}"'}
    return made_file(gateway, _MEDIA_TYPES[form], headers, write)


@router.get("/{query}")
async def get_query(
    folder: FolderDep,
    gateway: GatewayDep,
    wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT, description="Seconds to wait for the end.")] = 0,
) -> SqlQuery:
    """The state of a query. With `wait`, the response comes when it is over, or after that time."""
    deadline, pause = time.monotonic() + wait, _SHORTEST_PAUSE
    repeat_at = time.monotonic() + _REPEAT_SECONDS
    while True:
        query = await run_in_threadpool(query_state, gateway, folder)
        is_over = query.state in ("done", "failed")
        if is_over or time.monotonic() >= deadline or gateway.admission.is_closing:
            return query
        if query.state == "waiting" and time.monotonic() >= repeat_at:
            announce(gateway, folder)
            repeat_at = time.monotonic() + _REPEAT_SECONDS
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


@router.delete("/{query}")
def remove_query(folder: FolderDep, gateway: GatewayDep) -> RemovedSql:
    """Cancel a query if it runs, and remove it with its result."""
    query_state(gateway, folder)
    folder.remove()
    return RemovedSql(query=folder.query)


@router.get("/{query}/rows", responses=_REFUSALS)
def get_query_rows(
    folder: FolderDep,
    gateway: GatewayDep,
    *,
    offset: Offset = 0,
    limit: Limit = 50,
    search: Annotated[Text, Query(description="a text in any cell, ignoring case")] = "",
) -> SqlPage:
    """Rows of the result, in its order, as exact text."""
    _, key = finished_query(gateway, folder)
    with gateway.storage.open(key) as file:
        page = answer_page(file, offset, limit, search)
    return SqlPage(
        columns=page.columns, rows=page.rows, offset=offset, matched=page.matched, total=page.total
    )
