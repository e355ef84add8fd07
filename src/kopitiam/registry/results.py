"""The answers of a run: who makes them, and which attempt counts. Each function is a part of a
transaction.
"""

import json
from typing import Any

from sqlalchemy import Connection, insert, select

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunOver
from kopitiam.contracts.runs import RunState
from kopitiam.registry.port import Published
from kopitiam.registry.runs import get_run, locked, move, touch
from kopitiam.registry.schema import results, runs


def claim_final(connection: Connection, run: str, holder: str) -> bool:
    state = locked(connection, run).state
    if state.is_over:
        raise RunOver(f"run {run} is {state}")
    if state is RunState.OPEN:
        raise IllegalTransition(f"run {run} is {state} and cannot become {RunState.FINAL}")
    claimed_by = connection.scalar(select(runs.c.claimed_by).where(runs.c.run == run))
    if claimed_by is not None:
        return bool(claimed_by == holder)
    touch(connection, run, claimed_by=holder, state=RunState.FINAL)
    return True


def publish(connection: Connection, run: str, attempt: str, figures: dict[str, Any], now: float) -> None:
    state = locked(connection, run).state
    if before := _published(connection, run):
        if before.attempt != attempt:
            raise AlreadyPublished(f"run {run} has the answers of attempt {before.attempt}, not of {attempt}")
        return
    if state is RunState.SEALED:
        move(connection, run, RunState.FINAL, now)
    move(connection, run, RunState.DONE, now)
    connection.execute(
        insert(results).values(
            run=run, attempt=attempt, figures=json.dumps(figures, sort_keys=True), published_at=now
        )
    )


def get_results(connection: Connection, run: str) -> Published | None:
    get_run(connection, run)
    return _published(connection, run)


def _published(connection: Connection, run: str) -> Published | None:
    query = select(results.c.attempt, results.c.figures, results.c.published_at)
    found = connection.execute(query.where(results.c.run == run)).one_or_none()
    return Published(found.attempt, json.loads(found.figures), found.published_at) if found else None
