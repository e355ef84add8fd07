"""Calls about the files that a run sends to a data set: name, upload in chunks, END, and the seal of the run.

A client names the files that differ from the version it saw, and sends those that the data set does not hold.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.api import DurableChunks, End, Number, RunStatus, Sealed, StoredChunk
from kopitiam.contracts.api_types import Text
from kopitiam.contracts.data_api import FileList, FileStatus, NameFiles, SealRun, SourceFileView
from kopitiam.contracts.data_sets import DataFile, SourceFile
from kopitiam.contracts.errors import DataMissing
from kopitiam.contracts.runs import Run
from kopitiam.gateway.chunk_uploads import Target
from kopitiam.gateway.context import AccountDep, Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.routes.chunks import (
    CHUNK_BODY,
    CHUNK_REFUSALS,
    CSV_BODY,
    Part,
    Parts,
    announce_end,
    incomplete,
    list_durable,
    receive_rejected,
    store_chunk,
)
from kopitiam.gateway.status import run_status
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.crash_points import crash_point

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["files"])
_REFUSALS = refusals(408, 409, 410, 413, 415)
_DEFAULTS = SealRun()


async def _upload_run(run: RunDep) -> Run:
    """Return the run of the path. Raises Refusal (409) unless it sends files to a data set."""
    if run.data is None or not run.data.is_upload:
        message = f'run {run.run} sends no files; open one with "data": {{"name": …, "upload": true}}'
        raise Refusal(409, "no_data_set", message)
    return run


UploadDep = Annotated[Run, Depends(_upload_run)]


async def _target(
    run: UploadDep, file: Annotated[str, Path(pattern="^[a-z0-9]{16,32}$")], gateway: GatewayDep
) -> Target:
    """Return the file of the path with the columns that were named for it; 404 unless this run sends it."""
    sent = await run_in_threadpool(gateway.registry.sent_file, run.run, file)
    return Target(run, LAYOUT[sent.table].normal_form(sent.columns), sent)


TargetDep = Annotated[Target, Depends(_target)]


@router.post("/files", responses=_REFUSALS)
def name_files(run: UploadDep, gateway: GatewayDep, request: NameFiles) -> FileList:
    """Name files that the run adds to the data set or replaces there, up to a hundred in one call. Those that
    are `held` need not be sent: the data set has them in these bytes, with these columns. Repeatable."""
    tables = QuestionSet.from_dict(run.questions).tables
    needed = {name: {column.name for column in form.columns} for name, form in tables.items()}
    files = [_source_file(file, needed.get(file.table, set())) for file in request.files]
    named = gateway.registry.name_files(run.run, files)
    crash_point("files.named")
    return _file_list(run, named)


@router.get("/files", responses=refusals(409))
def get_files(run: UploadDep, gateway: GatewayDep) -> FileList:
    """The files that the run has named; when it is sealed, all that it answers over."""
    return _file_list(run, gateway.registry.run_files(run.run))


@router.put(
    "/files/{file}/chunks/{number}",
    status_code=201,
    response_model=StoredChunk,
    openapi_extra=CHUNK_BODY,
    responses={200: {"model": StoredChunk}, **CHUNK_REFUSALS},
)
async def put_file_chunk(
    target: TargetDep,
    number: Annotated[Number, Path()],
    request: Request,
    gateway: GatewayDep,
    account: AccountDep,
    *,
    file_name: Annotated[Text, Query(description="for CSV: the file, as rejected rows name it")] = "",
    line: Annotated[
        int | None, Query(ge=2, lt=2**53, description="the line of its first row in that file")
    ] = None,
) -> Response:
    """Store a chunk of a file, as for a table. The numbers of a file begin at 0."""
    place = (file_name or target.name, line)
    return await store_chunk(gateway, request, account, target, number, place)


@router.get("/files/{file}/chunks", responses=refusals(409))
def durable_file_chunks(target: TargetDep, gateway: GatewayDep) -> DurableChunks:
    """The chunks of a file that are durable: a client that resumes does not send them again."""
    return list_durable(target.form.name, gateway.registry.file_chunks(target.owner))


@router.put(
    "/files/{file}/rejected",
    status_code=204,
    response_class=Response,
    openapi_extra=CSV_BODY,
    responses=CHUNK_REFUSALS,
)
async def put_file_rejected(
    target: TargetDep,
    request: Request,
    gateway: GatewayDep,
    account: AccountDep,
    *,
    part: Part = 0,
    parts: Parts = 1,
) -> None:
    """Store the rows of a file that the client rejected, as for a table."""
    await receive_rejected(gateway, request, account, target, (part, parts))


@router.post("/files/{file}/end", responses=_REFUSALS)
def end_file(target: TargetDep, end: End, gateway: GatewayDep) -> Sealed:
    """END of a file: complete if exactly these chunks and rows are durable; else 409, as for a table."""
    ended = gateway.registry.end_file(target.run.run, target.owner, end.chunks, end.rows, end.rejected)
    if not ended.sealed:
        raise incomplete(target.name, ended)
    crash_point("file.ended")
    return Sealed(table=target.form.name, state=gateway.registry.get_run(target.run.run).state.value)


@router.post("/seal", responses=_REFUSALS)
def seal_run(run: UploadDep, gateway: GatewayDep, request: SealRun = _DEFAULTS) -> RunStatus:
    """Make the next version of the data set from the newest one and the files of this run, and begin to
    answer over it. 409 `version` if another client has made one meanwhile: seal again with its `newest`."""
    crash_point("data.sealing")
    gateway.registry.seal_run(run.run, request.version)
    crash_point("data.sealed")
    announce_run(gateway, run.run)
    return run_status(gateway.registry, run.run)


def announce_run(gateway: Gateway, run: str) -> None:
    """Publish the END of every table: the leader looks, even if no chunk is to be processed."""
    for table in gateway.registry.table_states(run):
        announce_end(gateway, run, table)


def _source_file(file: SourceFileView, needed: set[str]) -> SourceFile:
    """Raises Refusal (422) for a table or column that the layout does not have, and DataMissing if a column
    is left out that a question needs."""
    if file.table not in LAYOUT:
        raise Refusal(422, "invalid", f"table {file.table!r}: expected one of {', '.join(LAYOUT)}")
    layout = LAYOUT[file.table]
    if unknown := set(file.columns) - layout.by_name.keys():
        raise Refusal(422, "invalid", f"{file.table} has no column {min(unknown)!r}")
    if lacking := needed - set(file.columns):
        raise DataMissing(f"{file.table}/{file.name}: the questions of the run need column {min(lacking)}")
    columns = tuple(column.name for column in layout.normal_form(file.columns).columns)
    return SourceFile(file.table, file.name, file.digest, file.bytes, columns)


def _file_list(run: Run, files: list[DataFile]) -> FileList:
    return FileList(
        files=[
            FileStatus(
                file=file.file,
                table=file.table,
                name=file.name,
                digest=file.digest,
                columns=list(file.columns),
                held=file.run != run.run,
                chunks=file.chunks,
                rows=file.rows,
                rejected=file.rejected,
                ended=file.is_ended,
            )
            for file in files
        ]
    )
