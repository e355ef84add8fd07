"""The answers of a run: who makes them, and which attempt counts. Each function is a part of a
transaction.
"""

import json
from typing import Any

from sqlalchemy import Connection, and_, insert, select, update

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunOver, StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import attempts, leases
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
    connection.execute(
        claiming.values(
            claimed_by=claimant.name, claimed_epoch=claimant.epoch, claimed_holder=claimant.holder
        )
    )
    return True


def _claimant(connection: Connection, run: str) -> Fence | None:
    """A claim of a registry from before holders were kept has none: it is nobody's, and may be taken."""
    query = select(runs.c.claimed_by, runs.c.claimed_epoch, runs.c.claimed_holder).where(runs.c.run == run)
    name, epoch, holder = connection.execute(query).one()
    return None if name is None else Fence(name, epoch, holder or "")


def unclaim(connection: Connection, run: str, claimant: Fence) -> None:
    is_theirs = and_(
        runs.c.claimed_by == claimant.name,
        runs.c.claimed_epoch == claimant.epoch,
        runs.c.claimed_holder == claimant.holder,
    )
    unclaiming = update(runs).where(runs.c.run == run, is_theirs)
    connection.execute(unclaiming.values(claimed_by=None, claimed_epoch=None, claimed_holder=None))


def publish(
    connection: Connection,
    run: str,
    attempt: str,
    figures: dict[str, Any],
    *,
    digests: dict[str, str],
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
    attempts.end_well(connection, [run], "final")
    connection.execute(
        insert(results).values(
            run=run,
            attempt=attempt,
            figures=json.dumps(figures, sort_keys=True),
            published_at=now,
            digests=json.dumps(digests, sort_keys=True),
        )
    )


def get_results(connection: Connection, run: str) -> Published | None:
    get_run(connection, run)
    return published(connection, run)


def published(connection: Connection, run: str) -> Published | None:
    query = select(results.c.attempt, results.c.figures, results.c.published_at, results.c.digests)
    found = connection.execute(query.where(results.c.run == run)).one_or_none()
    if found is None:
        return None
    digests = json.loads(found.digests) if found.digests else {}
    return Published(found.attempt, json.loads(found.figures), found.published_at, digests)


def publish_provisional(
    connection: Connection, run: str, attempt: str, figures: dict[str, Any], now: float
) -> bool:
    if locked(connection, run).state.is_over:
        return False
    attempts.end_well(connection, [run], "provisional")
    values = {"attempt": attempt, "figures": json.dumps(figures, sort_keys=True), "published_at": now}
    connection.execute(
        upsert(connection, provisional)
        .values(run=run, **values)
        .on_conflict_do_update(index_elements=[provisional.c.run], set_=values)
    )
    return True


def get_provisional(connection: Connection, run: str) -> Published | None:
    get_run(connection, run)
    query = select(provisional.c.attempt, provisional.c.figures, provisional.c.published_at)
    found = connection.execute(query.where(provisional.c.run == run)).one_or_none()
    return Published(found.attempt, json.loads(found.figures), found.published_at) if found else None
