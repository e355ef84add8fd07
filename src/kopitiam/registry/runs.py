"""Runs: opened, listed, moved from state to state, forgotten. Each function is a part of a transaction."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from kopitiam.contracts.errors import (
    IdempotencyConflict,
    IllegalTransition,
    RunNotFound,
    RunOver,
    TooManyRuns,
)
from kopitiam.contracts.runs import OVER, Run, RunState, can_move
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import Opened, Wanted
from kopitiam.registry.schema import attempts, chunks, owners, partials, run_tables, runs
from kopitiam.registry.transactions import upsert

RUN_COLUMNS = tuple(
    runs.c[name]
    for name in (
        "run", "label", "state", "questions", "owner", "shards",
        "created_at", "lease_expires_at", "finished_at", "error",
    )
)  # fmt: skip
LOCK = select(*RUN_COLUMNS).where(runs.c.run == bindparam("run")).with_for_update()


def open_run(
    connection: Connection, wanted: Run, key: str | None, lease_seconds: float, most: int | None
) -> Opened:
    _wait_for_others_of(connection, wanted.owner)
    if before := _opened_before(connection, wanted, key):
        if before.label != wanted.label or not _ask_the_same(before, wanted):
            raise IdempotencyConflict(f"key {key!r} opened run {before.run}, which asks for something else")
        return Opened(before, is_new=False)
    if most is not None and _count_open(connection, wanted.owner) >= most:
        raise TooManyRuns(f"{most} runs are open already, and no more are allowed at once")
    connection.execute(
        insert(runs).values(
            run=wanted.run,
            label=wanted.label,
            state=wanted.state,
            questions=json.dumps(wanted.questions, sort_keys=True),
            owner=wanted.owner,
            idempotency_key=key,
            shards=wanted.shards,
            created_at=wanted.created_at,
            lease_seconds=lease_seconds,
            lease_expires_at=wanted.lease_expires_at,
            version=1,
        )
    )
    connection.execute(
        insert(run_tables),
        [
            {"run": wanted.run, "table_name": table, "chunks": 0, "rows": 0, "rejected": 0}
            for table in QuestionSet.from_dict(wanted.questions).tables
        ],
    )
    return Opened(wanted, is_new=True)


def _wait_for_others_of(connection: Connection, owner: str) -> None:
    """Two openings by one owner go one after the other, so that keys and limits hold."""
    adding = upsert(connection, owners).values(owner=owner, runs_opened=1)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[owners.c.owner], set_={"runs_opened": owners.c.runs_opened + 1}
        )
    )


def _ask_the_same(one: Run, other: Run) -> bool:
    """By what they ask: another version may keep it in another form."""
    return one.questions == other.questions or (
        QuestionSet.of_run(one.questions) == QuestionSet.of_run(other.questions)
    )


def _opened_before(connection: Connection, wanted: Run, key: str | None) -> Run | None:
    if key is None:
        return None
    query = select(*RUN_COLUMNS).where(runs.c.owner == wanted.owner, runs.c.idempotency_key == key)
    found = connection.execute(query).one_or_none()
    return _run(found) if found else None


def _count_open(connection: Connection, owner: str) -> int:
    query = select(func.count()).where(runs.c.owner == owner, runs.c.state == RunState.OPEN)
    return connection.scalar(query) or 0


def get_run(connection: Connection, run: str) -> Run:
    found = connection.execute(select(*RUN_COLUMNS).where(runs.c.run == run)).one_or_none()
    if found is None:
        raise RunNotFound(f"no run {run}")
    return _run(found)


def locked(connection: Connection, run: str) -> Run:
    """The run as it stays until this transaction ends. (SQLite's writers are alone anyway.)"""
    found = connection.execute(LOCK, {"run": run}).one_or_none()
    if found is None:
        raise RunNotFound(f"no run {run}")
    return _run(found)


def locked_states(connection: Connection, names: Collection[str]) -> dict[str, RunState]:
    """Of those that are there. They are locked in the order of their ids, whoever asks: two transactions
    that want the same runs wait for each other, but never in a circle."""
    query = select(runs.c.run, runs.c.state).where(runs.c.run.in_(sorted(names)))
    found = connection.execute(query.order_by(runs.c.run).with_for_update())
    return {row.run: RunState(row.state) for row in found}


def list_runs(
    connection: Connection, wanted: Wanted, limit: int, before: tuple[float, str] | None
) -> list[Run]:
    query = select(*RUN_COLUMNS).where(*_is_wanted(wanted)).limit(limit)
    if before is not None:
        query = query.where(tuple_(runs.c.created_at, runs.c.run) < before)
    return _all(connection, query.order_by(runs.c.created_at.desc(), runs.c.run.desc()))


def most_shards(connection: Connection) -> int:
    query = select(func.max(runs.c.shards)).where(runs.c.state.not_in(OVER))
    return connection.scalar(query) or 0


def count_listed(connection: Connection, wanted: Wanted) -> int:
    query = select(func.count()).select_from(runs).where(*_is_wanted(wanted))
    return connection.scalar(query) or 0


def _is_wanted(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    if wanted.owner is not None:
        yield runs.c.owner == wanted.owner
    if wanted.states:
        yield runs.c.state.in_(wanted.states)
    if text := wanted.search:
        is_begun_with = runs.c.run.startswith(text.lower(), autoescape=True)
        yield or_(runs.c.label.icontains(text, autoescape=True), is_begun_with)


def runs_in(connection: Connection, states: tuple[RunState, ...]) -> list[Run]:
    query = select(*RUN_COLUMNS).where(runs.c.state.in_(states))
    return _all(connection, query.order_by(runs.c.created_at, runs.c.run))


def count_runs(connection: Connection, state: RunState) -> int:
    return connection.scalar(select(func.count()).where(runs.c.state == state)) or 0


def expired_runs(connection: Connection, now: float) -> list[Run]:
    query = select(*RUN_COLUMNS).where(runs.c.state == RunState.OPEN, runs.c.lease_expires_at <= now)
    return _all(connection, query.order_by(runs.c.lease_expires_at, runs.c.run))


def finished_before(connection: Connection, moment: float, with_chunks: bool) -> list[Run]:
    query = select(*RUN_COLUMNS).where(runs.c.state.in_(OVER), runs.c.finished_at < moment)
    if with_chunks:
        query = query.where(or_(*(exists().where(of.c.run == runs.c.run) for of in (chunks, partials))))
    return _all(connection, query.order_by(runs.c.finished_at, runs.c.run))


def version(connection: Connection, run: str) -> int:
    found: int | None = connection.scalar(select(runs.c.version).where(runs.c.run == run))
    if found is None:
        raise RunNotFound(f"no run {run}")
    return found


def touch(connection: Connection, run: str, **changes: Any) -> None:
    """Every change of a run or of what belongs to it goes through here, so that its version grows."""
    connection.execute(update(runs).where(runs.c.run == run).values(version=runs.c.version + 1, **changes))


def touch_all(connection: Connection, names: Collection[str]) -> None:
    connection.execute(update(runs).where(runs.c.run.in_(names)).values(version=runs.c.version + 1))


def renew_lease(connection: Connection, run: str, expires_at: float) -> None:
    if (state := locked(connection, run).state).is_over:
        raise RunOver(f"run {run} is {state}")
    connection.execute(update(runs).where(runs.c.run == run).values(lease_expires_at=expires_at))


def renew_open_runs(connection: Connection, now: float) -> None:
    is_open = runs.c.state == RunState.OPEN
    full = now + runs.c.lease_seconds
    shorter = select(runs.c.run).where(is_open, runs.c.lease_expires_at < full)
    names = connection.scalars(shorter.order_by(runs.c.run).with_for_update()).all()  # as in locked_states
    connection.execute(update(runs).where(runs.c.run.in_(names)).values(lease_expires_at=full))


def move(connection: Connection, run: str, to: RunState, now: float, error: str | None = None) -> Run:
    state = locked(connection, run).state
    if not can_move(state, to):
        raise IllegalTransition(f"run {run} is {state} and cannot become {to}")
    touch(connection, run, state=to, error=error, finished_at=now if to.is_over else None)
    return get_run(connection, run)


def force_end(  # noqa: PLR0917 - as the port has them
    connection: Connection, run: str, reason: str, now: float, only_if_expired: bool, as_of: float | None
) -> bool:
    found = locked(connection, run)
    earlier = now if as_of is None else min(now, as_of)
    is_alive = found.state is not RunState.OPEN or found.lease_expires_at > earlier
    if found.state.is_over or (only_if_expired and is_alive):
        return False
    move(connection, run, RunState.ENDED, now, reason)
    return True


def forget_chunks(connection: Connection, run: str) -> None:
    _want_over(locked(connection, run))
    for table in (chunks, partials, attempts):
        connection.execute(delete(table).where(table.c.run == run))


def forget_run(connection: Connection, run: str) -> bool:
    try:
        _want_over(locked(connection, run))
    except RunNotFound:
        return False
    connection.execute(delete(runs).where(runs.c.run == run))  # what belongs to it goes along
    return True


def _want_over(run: Run) -> None:
    if not run.state.is_over:
        raise IllegalTransition(f"run {run.run} is {run.state}: only a run that is over can be forgotten")


def _all(connection: Connection, query: Select[Any]) -> list[Run]:
    return [_run(row) for row in connection.execute(query)]


def _run(row: Row[Any]) -> Run:
    columns = row._asdict()
    columns["state"] = RunState(columns["state"])
    columns["questions"] = json.loads(columns["questions"])
    return Run(**columns)
