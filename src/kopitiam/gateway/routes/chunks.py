"""Calls about the chunks of a table: upload, list, END, and the rows that the client rejected."""

import functools
import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.api import (
    CSV,
    MOST_REJECTED_BYTES,
    MOST_REJECTED_PARTS,
    PARQUET,
    DurableChunks,
    End,
    Number,
    Sealed,
    StoredChunk,
)
from kopitiam.contracts.api_types import Text
from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.runs import ChunkRecord, Run, RunState, Span
from kopitiam.gateway.announcements import publish_end
from kopitiam.gateway.chunk_uploads import Target, receive
from kopitiam.gateway.context import AccountDep, Gateway, GatewayDep, RunDep, TableDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.landing.rejected import store_rejected
from kopitiam.registry.records import Ended
from kopitiam.system.crash_points import crash_point

router = APIRouter(prefix="/api/v1/runs/{run}/tables/{table}", tags=["chunks"])
_BINARY = {"schema": {"type": "string", "format": "binary"}}
CHUNK_BODY = {"requestBody": {"required": True, "content": {PARQUET: _BINARY, CSV: _BINARY}}}
CSV_BODY = {"requestBody": {"required": True, "content": {CSV: _BINARY}}}
CHUNK_REFUSALS = refusals(408, 409, 410, 413, 415)
Part = Annotated[int, Query(ge=0, lt=MOST_REJECTED_PARTS, description="number of this part, from 0 on")]
Parts = Annotated[int, Query(ge=1, le=MOST_REJECTED_PARTS, description="number of all parts")]
_MOST_NUMBERS = 1000  # listed one by one; the spans list all


@router.put(
    "/chunks/{number}",
    status_code=201,
    response_model=StoredChunk,
    openapi_extra=CHUNK_BODY,
    responses={200: {"model": StoredChunk}, **CHUNK_REFUSALS},
)
async def put_chunk(
    run: RunDep,
    table: TableDep,
    number: Annotated[Number, Path()],
    request: Request,
    gateway: GatewayDep,
    *,
    account: AccountDep,
    file: Annotated[Text, Query(description="for CSV: the file that the chunk was cut from")] = "",
    line: Annotated[
        int | None, Query(ge=2, lt=2**53, description="the line of its first row in that file")
    ] = None,
) -> Response:
    """Store a chunk: Parquet in normal form, or CSV with a header. 201 when durable, 200 if it was.

    Rows of a CSV chunk that do not parse are rejected, with file and line if the call names them.
    """
    return await store_chunk(gateway, request, account, Target(run, table), number, (file, line))


async def store_chunk(  # noqa: PLR0917
    gateway: Gateway,
    request: Request,
    account: str,
    target: Target,
    number: int,
    place: tuple[str, int | None],
) -> Response:
    """Receive and store the chunk of a table or a file. `place` is the file and line of a CSV body."""
    _require_accepting(target.run)
    limits = gateway.settings.gateway
    async with gateway.admission.body(account) as pace:
        crash_point("chunk.begun")
        path = gateway.incoming / f"{uuid.uuid4().hex}.body"
        try:
            async with gateway.keeping_lease(target.run):
                body = await receive(request, path, limits.max_chunk_bytes, pace)
                body = replace(body, file=place[0], line=place[1])
                stored, is_new = await run_in_threadpool(gateway.uploads.accept, target, number, body)
        finally:
            path.unlink(missing_ok=True)
    return JSONResponse(stored.model_dump(), 201 if is_new else 200)


@router.get("/chunks", responses=refusals(409))
def durable_chunks(run: RunDep, table: TableDep, gateway: GatewayDep) -> DurableChunks:
    """The chunks that are durable: a client that resumes does not send them again."""
    return list_durable(table.name, gateway.registry.chunks(run.run, table.name))


def list_durable(table: str, records: Iterable[ChunkRecord]) -> DurableChunks:
    chunks = [
        StoredChunk(table=table, number=c.number, rows=c.rows, rejected=c.rejected, digest=c.digest)
        for c in records
    ]
    return DurableChunks(table=table, rows=sum(chunk.rows for chunk in chunks), chunks=chunks)


@router.post("/end", responses=CHUNK_REFUSALS)
def end_table(run: RunDep, table: TableDep, end: End, gateway: GatewayDep) -> Sealed:
    """END: seals the table if exactly these chunks and rows are durable; else 409 with the missing
    chunks: all of them as spans of numbers, and the first thousand as `missing_numbers`."""
    crash_point("table.ending")
    ended = gateway.registry.end_table(run.run, table.name, end.chunks, end.rows, end.rejected)
    if not ended.sealed:
        raise incomplete(table.name, ended)
    crash_point("table.sealed")
    announce_end(gateway, run.run, table.name)
    return Sealed(table=table.name, state=gateway.registry.get_run(run.run).state.value)


@router.put(
    "/rejected",
    status_code=204,
    response_class=Response,
    openapi_extra=CSV_BODY,
    responses=CHUNK_REFUSALS,
)
async def put_rejected(
    run: RunDep,
    table: TableDep,
    request: Request,
    gateway: GatewayDep,
    *,
    account: AccountDep,
    part: Part = 0,
    parts: Parts = 1,
) -> None:
    """Store the rows that the client rejected, as CSV with a header.

    A large file is sent in parts, each with a header. A repeated upload replaces the earlier one.
    """
    await receive_rejected(gateway, request, account, Target(run, table), (part, parts))


async def receive_rejected(
    gateway: Gateway, request: Request, account: str, target: Target, numbers: tuple[int, int]
) -> None:
    """Receive and store a part of the rejected rows of a table or a file; `numbers`: part and parts."""
    _require_accepting(target.run)
    part, parts = numbers
    if part >= parts:
        raise Refusal(422, "invalid", f"part {part} of {parts}: parts are counted from 0")
    async with gateway.admission.body(account) as pace:
        path = gateway.incoming / f"{uuid.uuid4().hex}.rejected"
        try:
            body = await receive(request, path, MOST_REJECTED_BYTES, pace)
            if body.media_type != CSV:
                raise Refusal(415, "media_type", f"expected {CSV}")
            content = path.read_bytes()
            storing = functools.partial(store_rejected, part=part, parts=parts)
            await run_in_threadpool(storing, gateway.storage, target.owner, target.form.name, content)
        finally:
            path.unlink(missing_ok=True)


def announce_end(gateway: Gateway, run: str, table: str) -> None:
    """Publish the END of the table, on the outbox's thread: clients do not wait for the bus."""
    publish = functools.partial(publish_end, gateway.registry, gateway.bus, run, table)
    gateway.outbox.put(f"END of {table} of run {run}", publish)


def _require_accepting(run: Run) -> None:
    if run.state.is_over or run.state is RunState.FINAL:
        raise RunOver(f"run {run.run} is {run.state}: it accepts no more chunks")


def _numbers(spans: Iterable[Span]) -> Iterator[int]:
    for first, last in spans:
        yield from range(first, last + 1)


def incomplete(table: str, ended: Ended) -> Refusal:
    messages = {
        "missing": "chunks are missing",
        "extra": "more chunks are durable than END says",
        "rows_differ": "the row counts differ",
        "conflict": "an earlier END has other figures",
    }
    error = "incomplete" if ended.outcome == "missing" else ended.outcome
    return Refusal(
        409,
        error,
        f"{table}: {messages[ended.outcome]}: {ended.chunks} chunks and {ended.rows} rows are durable, "
        f"END says {ended.expected_chunks} and {ended.expected_rows}",
        chunks=ended.chunks,
        rows=ended.rows,
        expected_chunks=ended.expected_chunks,
        expected_rows=ended.expected_rows,
        missing=[list(span) for span in ended.missing],
        missing_numbers=list(itertools.islice(_numbers(ended.missing), _MOST_NUMBERS)),
        extra=[list(span) for span in ended.extra],
    )
