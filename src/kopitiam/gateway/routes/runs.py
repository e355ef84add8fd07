"""Runs: opened, listed, looked at, ended."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kopitiam.contracts.api import OpenRun, RunList, RunStatus, Text
from kopitiam.contracts.errors import KopitiamError
from kopitiam.contracts.runs import RunState, is_run_id
from kopitiam.gateway.announcements import force_end
from kopitiam.gateway.context import CallerDep, Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.routes.questions import asked_questions
from kopitiam.gateway.status import run_status

router = APIRouter(prefix="/api/v1", tags=["runs"])
_LOOK_SECONDS = 0.25
_SIGN_OF_LIFE_EVERY = 60  # looks
_DEFAULTS = OpenRun()
_REFUSALS = refusals(408, 409, 413, 415)


@router.post("/runs", status_code=201, responses={200: {"model": RunStatus}, **_REFUSALS})
def open_run(
    gateway: GatewayDep, caller: CallerDep, response: Response, wanted: OpenRun = _DEFAULTS
) -> RunStatus:
    """Open a run. The same idempotency key gives the same run again (200). All fields are optional."""
    settings = gateway.settings
    opened = gateway.registry.open_run(
        asked_questions(wanted.questions, settings.questions).to_dict(),
        wanted.label,
        caller.owner,
        idempotency_key=wanted.idempotency_key,
        lease_seconds=settings.gateway.lease_seconds,
        shards=settings.pipeline.shards,
        max_open_runs=settings.gateway.max_open_runs,
    )
    response.status_code = 201 if opened.is_new else 200
    return run_status(gateway.registry, opened.run.run)


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
    found = registry.list_runs(caller.sees, limit + 1, _cursor(before), states=state, search=search)
    page = found[:limit]
    more = len(found) > limit
    cursor = page[-1].cursor if more else None
    return RunList(
        runs=[run_status(registry, run.run) for run in page],
        next=f"{cursor[0]!r}~{cursor[1]}" if cursor else None,
        total=registry.count_listed(caller.sees, states=state, search=search),
    )


@router.get("/runs/{run}")
def get_run(run: RunDep, gateway: GatewayDep) -> RunStatus:
    """State, progress, rejected and unmatched counts."""
    return run_status(gateway.registry, run.run)


@router.delete("/runs/{run}")
def end_run(run: RunDep, gateway: GatewayDep) -> RunStatus:
    """Force End: the run takes no more chunks and leaves no files. One that is over stays as it is."""
    force_end(gateway, run.run, "cancelled")
    return run_status(gateway.registry, run.run)


@router.get(
    "/runs/{run}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_run(run: RunDep, gateway: GatewayDep) -> StreamingResponse:
    """The run's status as server-sent events: at once, and again with every change, until it is over."""

    async def events() -> AsyncIterator[str]:
        with gateway.endings.awaited(run.run) as told:
            async for event in _changes(gateway, run.run, told):
                yield event

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _changes(gateway: Gateway, run: str, told: asyncio.Event) -> AsyncIterator[str]:
    """Looks now and then, and at once when told that there is something to see."""
    seen, looks = -1, 0
    while not gateway.admission.is_closing:
        told.clear()
        try:
            version = await run_in_threadpool(gateway.registry.version, run)
            status = await run_in_threadpool(run_status, gateway.registry, run) if version != seen else None
        except KopitiamError:
            return  # forgotten, or the registry is away: whoever asks again is told
        if status is not None:
            yield f"event: status\ndata: {json.dumps(status.model_dump())}\n\n"
            if RunState(status.state).is_over:
                return
            seen = version
        looks += 1
        if not looks % _SIGN_OF_LIFE_EVERY:
            yield ": still here\n\n"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await told.wait()


def _cursor(before: str | None) -> tuple[float, str] | None:
    if before is None:
        return None
    moment, _, run = before.partition("~")
    try:
        created_at = float(moment)
    except ValueError:
        created_at = math.nan
    if not math.isfinite(created_at) or not is_run_id(run):
        raise Refusal(422, "invalid", "before: want the `next` of the page before")
    return created_at, run
