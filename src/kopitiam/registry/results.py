"""The answers of a run: who makes them, and which attempt counts. Each function is a part of a
transaction.
"""

import json
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunOver, StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import leases
from kopitiam.registry.records import Fence, Published
from kopitiam.registry.runs import get_run, locked, move
from kopitiam.registry.schema import provisional, results, runs
from kopitiam.registry.transactions import upsert


def claim_final(connection: Connection, run: str, claimant: Fence, now: float) -> bool:
    state = locked(connection, run).state
    if state.is_over:
        raise RunOver(f"run {run} is {state}")
    if state is not RunState.FINAL:
        raise IllegalTransition(f"run {run} is {state}, and its barrier has not opened")
    earlier = _claimant(connection, run)
    if earlier == claimant:
        return True
    if earlier is not None and leases.holds(connection, earlier, now):
        return False
    claiming = update(runs).where(runs.c.run == run)
    connection.execute(claiming.values(claimed_by=claimant.name, claimed_epoch=claimant.epoch))
    return True


def _claimant(connection: Connection, run: str) -> Fence | None:
    query = select(runs.c.claimed_by, runs.c.claimed_epoch).where(runs.c.run == run)
    name, epoch = connection.execute(query).one()
    return None if name is None else Fence(name, epoch)


def unclaim(connection: Connection, run: str, claimant: Fence) -> None:
    is_theirs = and_(runs.c.claimed_by == claimant.name, runs.c.claimed_epoch == claimant.epoch)
    unclaiming = update(runs).where(runs.c.run == run, is_theirs)
    connection.execute(unclaiming.values(claimed_by=None, claimed_epoch=None))


def publish(
    connection: Connection,
    run: str,
    attempt: str,
    figures: dict[str, Any],
    *,
    claimant: Fence | None,
    now: float,
) -> None:
    locked(connection, run)
    if claimant is not None and _claimant(connection, run) != claimant:
        raise StaleEpoch(f"the answers of run {run} are not {claimant.name}'s to publish")
    if before := published(connection, run):
        if before.attempt != attempt:
            raise AlreadyPublished(f"run {run} has the answers of attempt {before.attempt}, not of {attempt}")
        return
    move(connection, run, RunState.DONE, now)
    connection.execute(
        insert(results).values(
            run=run, attempt=attempt, figures=json.dumps(figures, sort_keys=True), published_at=now
        )
    )


def get_results(connection: Connection, run: str) -> Published | None:
    get_run(connection, run)
    return published(connection, run)


def published(connection: Connection, run: str) -> Published | None:
    return _published(connection, results, run)


def publish_provisional(
    connection: Connection, run: str, attempt: str, figures: dict[str, Any], now: float
) -> bool:
    if locked(connection, run).state.is_over:
        return False
    values = {"attempt": attempt, "figures": json.dumps(figures, sort_keys=True), "published_at": now}
    connection.execute(
        upsert(connection, provisional)
        .values(run=run, **values)
        .on_conflict_do_update(index_elements=[provisional.c.run], set_=values)
    )
    return True


def get_provisional(connection: Connection, run: str) -> Published | None:
    get_run(connection, run)
    return _published(connection, provisional, run)


def _published(connection: Connection, table: Table, run: str) -> Published | None:
    query = select(table.c.attempt, table.c.figures, table.c.published_at)
    found = connection.execute(query.where(table.c.run == run)).one_or_none()
    return Published(found.attempt, json.loads(found.figures), found.published_at) if found else None
