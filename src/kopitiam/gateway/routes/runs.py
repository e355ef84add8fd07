"""Calls about runs: open, list, read, watch as server-sent events, and Force End."""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.api import OpenRun, RunList, RunStatus
from kopitiam.contracts.api_types import Text
from kopitiam.contracts.data_sets import DataRequest
from kopitiam.contracts.errors import KopitiamError, Unavailable
from kopitiam.contracts.runs import RunState, is_run_id
from kopitiam.gateway.context import CallerDep, Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.removal import announce_force_end
from kopitiam.gateway.removal import purge as purge_run
from kopitiam.gateway.routes.files import announce_run
from kopitiam.gateway.routes.questions import requested_questions
from kopitiam.gateway.status import run_status
from kopitiam.landing.tidying import remove_run
from kopitiam.registry.records import Opened
from kopitiam.system.crash_points import crash_point

router = APIRouter(prefix="/api/v1", tags=["runs"])
_POLL_SECONDS = 0.25
_KEEP_ALIVE_EVERY = 60  # polls
_DEFAULTS = OpenRun()
_REFUSALS = refusals(408, 409, 413, 415)
_log = logging.getLogger(__name__)


@router.post("/runs", status_code=201, responses={200: {"model": RunStatus}, **_REFUSALS})
def open_run(
    gateway: GatewayDep, caller: CallerDep, response: Response, request: OpenRun = _DEFAULTS
) -> RunStatus:
    """Open a run. The same idempotency key gives the same run again (200). All fields are optional.

    With `data` the run sends files to a data set, or asks a version of one and is sealed at once.
    """
    opened = _open(gateway, caller.owner, request)
    response.status_code = 201 if opened.is_new else 200
    return run_status(gateway.registry, opened.run.run)


def _open(gateway: Gateway, owner: str, request: OpenRun) -> Opened:
    settings, data = gateway.settings, request.data
    questions = requested_questions(request.questions, settings.questions).to_dict()
    limits: dict[str, Any] = {
        "idempotency_key": request.idempotency_key,
        "lease_seconds": settings.gateway.lease_seconds,
        "shards": settings.pipeline.shards,
        "max_open_runs": settings.gateway.max_open_runs,
    }
    if data is None:
        return gateway.registry.open_run(questions, request.label, owner, **limits)
    opened = gateway.registry.open_data_run(
        questions,
        request.label,
        owner,
        DataRequest(data.name, data.upload, data.version),
        max_data_sets=settings.gateway.max_data_sets,
        **limits,
    )
    if not data.upload:
        crash_point("data.asked")
        announce_run(gateway, opened.run.run)
    return opened


@router.get("/runs")
def list_runs(
    gateway: GatewayDep,
    caller: CallerDep,
    *,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(max_length=100, description="`next` of the page before")] = None,
    state: Annotated[tuple[RunState, ...], Query(description="only runs in one of these states")] = (),
    search: Annotated[Text, Query(description="in the label, or the beginning of the id")] = "",
) -> RunList:
    """Runs, newest first."""
    registry = gateway.registry
    runs = registry.list_runs(caller.visible_owner, limit + 1, _cursor(before), states=state, search=search)
    page = runs[:limit]
    more = len(runs) > limit
    cursor = page[-1].cursor if more else None
    return RunList(
        runs=[run_status(registry, run.run) for run in page],
        next=f"{cursor[0]!r}~{cursor[1]}" if cursor else None,
        total=registry.count_listed(caller.visible_owner, states=state, search=search),
    )


@router.get("/runs/{run}")
def get_run(run: RunDep, gateway: GatewayDep) -> RunStatus:
    """State, progress, rejected and unmatched counts."""
    return run_status(gateway.registry, run.run)


@router.delete("/runs/{run}")
def end_run(
    run: RunDep,
    gateway: GatewayDep,
    purge: Annotated[bool, Query(description="delete the run too, with its answers")] = False,
) -> RunStatus:
    """Force End: the run accepts no more chunks, and its files are removed. A run that is over stays, unless
    it is purged: then nothing of it remains. Files of a data set are not the run's, and stay."""
    if not purge:
        _force_end(gateway, run.run, "cancelled")
        return run_status(gateway.registry, run.run)
    status = run_status(gateway.registry, run.run)
    purge_run(gateway, run.run)
    return status


@router.get(
    "/runs/{run}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_run(run: RunDep, gateway: GatewayDep) -> StreamingResponse:
    """The run's status as server-sent events: at once, and again with every change, until it is over."""

    async def events() -> AsyncIterator[str]:
        with gateway.run_ends.waiting(run.run) as ended:
            async for event in _changes(gateway, run.run, ended):
                yield event

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _changes(gateway: Gateway, run: str, ended: asyncio.Event) -> AsyncIterator[str]:
    """Yield an event for each change of the run, found by polling, or at once when `ended` is set."""
    version_sent, polls = -1, 0
    while not gateway.admission.is_closing:
        ended.clear()
        try:
            version = await run_in_threadpool(gateway.registry.version, run)
            is_new = version != version_sent
            status = await run_in_threadpool(run_status, gateway.registry, run) if is_new else None
        except KopitiamError:
            return  # the run was removed or the registry is unavailable: the next request gets the error
        if status is not None:
            yield f"event: status\ndata: {json.dumps(status.model_dump())}\n\n"
            if RunState(status.state).is_over:
                return
            version_sent = version
        polls += 1
        if not polls % _KEEP_ALIVE_EVERY:
            yield ": still here\n\n"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await ended.wait()


def _force_end(gateway: Gateway, run: str, reason: str) -> None:
    """End the run in the registry, notify all nodes, remove its files. Does nothing if the run is over."""
    crash_point("force_end.begun")
    if not gateway.registry.force_end(run, reason):
        return
    crash_point("force_end.recorded")
    _log.warning("run %s: Force End, %s", run, reason, extra={"run": run})
    announce_force_end(gateway, run, reason)
    crash_point("force_end.announced")
    try:
        remove_run(gateway.storage, run)
    except Unavailable as error:  # the janitor removes them later
        _log.warning("run %s: its files are not removed yet: %s", run, error, extra={"run": run})


def _cursor(before: str | None) -> tuple[float, str] | None:
    if before is None:
        return None
    moment, _, run = before.partition("~")
    try:
        created_at = float(moment)
    except ValueError:
        created_at = math.nan
    if not math.isfinite(created_at) or not is_run_id(run):
        raise Refusal(422, "invalid", "before: expected the `next` of the page before")
    return created_at, run
