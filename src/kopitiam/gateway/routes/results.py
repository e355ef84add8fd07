"""Answers, in their three forms, and the rows that were set aside."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, Response, StreamingResponse

from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.context import Gateway, GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.provisional import provisional_answers
from kopitiam.results.forms import SUMMARY_FILE, form_name

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
_REFUSALS = refusals(409, 410)
_MEDIA_TYPES = {"csv": CSV, "json": "application/json", "parquet": PARQUET}

AnswerName = Literal["1", "2_1", "2_2", "3", "4"]
Form = Literal["csv", "json", "parquet"]
Provisional = Annotated[bool, Query(description="Before the run is done: answers to what has come so far.")]


@router.get("/results/summary.json", response_class=FileResponse, responses=_REFUSALS)
def get_summary(run: RunDep, gateway: GatewayDep, provisional: Provisional = False) -> FileResponse:
    """The account of the run: rows read, used and rejected, what was asked, what did not match."""
    if provisional and not run.state.is_over:
        return _as_file(provisional_answers(gateway, run), SUMMARY_FILE, "json")
    return _file(gateway, run, SUMMARY_FILE, "json")


@router.get("/results/{answer}.{form}", response_class=FileResponse, responses=_REFUSALS)
def get_answer(
    run: RunDep, answer: AnswerName, form: Form, gateway: GatewayDep, provisional: Provisional = False
) -> FileResponse:
    """One answer: 1, 2_1, 2_2, 3 or 4, as csv, json or parquet.

    A provisional answer says in its JSON how many rows it covers of those that have come.
    """
    if provisional and not run.state.is_over:
        folder = provisional_answers(gateway, run)
        return _as_file(folder, form_name(ANSWERS[answer], form), form)
    return _file(gateway, run, form_name(ANSWERS[answer], form), form)


@router.get("/rejected.csv", response_class=Response, responses={200: {"content": {CSV: {}}}, **_REFUSALS})
def get_rejected(run: RunDep, gateway: GatewayDep) -> Response:
    """All rows that were set aside, by the client or here, with file, line and reason."""
    files = sorted(gateway.home.rejected(run.run).glob("*.csv"))
    if not files:
        raise Refusal(404, "not_found", "no row was set aside")

    def lines() -> Iterator[bytes]:
        for position, file in enumerate(files):
            with file.open("rb") as content:
                yield from itertools.islice(content, 1 if position else 0, None)

    return StreamingResponse(lines(), media_type=CSV)


def _file(gateway: Gateway, run: Run, name: str, form: str) -> FileResponse:
    published = gateway.registry.results(run.run)
    if published is None:
        if run.state is RunState.ENDED:
            raise Refusal(410, "over", f"the run was ended: {run.error or 'cancelled'}")
        why = f": {run.error}" if run.error else ""
        raise Refusal(
            409, "not_ready", f"no answers: the run is {run.state.value}{why}", state=run.state.value
        )
    return _as_file(gateway.home.attempt(run.run, published.attempt), name, form)


def _as_file(folder: Path, name: str, form: str) -> FileResponse:
    path = folder / name
    if not path.is_file():
        raise Refusal(404, "not_found", "these answers have been cleaned up")
    return FileResponse(path, media_type=_MEDIA_TYPES[form], filename=name)
