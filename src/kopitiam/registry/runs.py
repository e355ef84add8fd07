"""Runs: opening, listing, states, leases, removal.

The methods of `RunTransactions` are transactions; the functions are steps inside one, which other
transactions use too.
"""

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

from kopitiam.contracts.data_sets import DataUse
from kopitiam.contracts.errors import (
    IdempotencyConflict,
    IllegalTransition,
    RunNotFound,
    RunOver,
    TooManyRuns,
)
from kopitiam.contracts.runs import OVER, Run, RunState, can_move, new_run_id
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.data_schema import file_progress, used_partials
from kopitiam.registry.records import Fence, Opened, require_counts
from kopitiam.registry.schema import attempts, chunks, owners, partials, run_tables, runs, upsert
from kopitiam.registry.transactions import RegistryBase

RUN_COLUMNS = tuple(
    runs.c[name]
    for name in (
        "run", "label", "state", "questions", "owner", "shards",
        "created_at", "lease_expires_at", "finished_at", "error", "data", "is_purged",
    )
)  # fmt: skip
# What the processing of a run leaves, until its files are removed.
WORK_OF_RUN = (chunks, partials, used_partials, file_progress)
LOCK = select(*RUN_COLUMNS).where(runs.c.run == bindparam("run")).with_for_update()


class RunTransactions(RegistryBase):
    def open_run(
        self,
        questions: dict[str, Any],
        label: str,
        owner: str,
        *,
        idempotency_key: str | None,
        lease_seconds: float,
        shards: int,
        max_open_runs: int | None = None,
    ) -> Opened:
        """Open a run, or return the run that this owner opened with the same key before.

        Raises `IdempotencyConflict` if that run has another label or other questions, and `TooManyRuns` if
        the owner has `max_open_runs` runs in state open.
        """
        require_counts(other_shards=shards - 1)
        name, kept_questions = new_run_id(), json.loads(json.dumps(questions))

        def opened(connection: Connection) -> Opened:
            now = self._clock(connection)
            run = Run(
                run=name,
                label=label,
                state=RunState.OPEN,
                questions=kept_questions,
                owner=owner,
                shards=shards,
                created_at=now,
                lease_expires_at=now + lease_seconds,
            )
            return open_new_run(connection, run, idempotency_key, lease_seconds, max_open_runs)

        return self._write(opened)

    def get_run(self, run: str) -> Run:
        return self._read(lambda c: get_run(c, run))

    def list_runs(
        self,
        owner: str | None,
        limit: int,
        before: tuple[float, str] | None = None,
        *,
        states: tuple[RunState, ...] = (),
        search: str = "",
    ) -> list[Run]:
        """Return a page of runs, newest first; `before` is the `cursor` of the last run on the page before.

        `search` matches any part of a label, ignoring case, or the beginning of an id.
        """
        query = select(*RUN_COLUMNS).where(*_filters(owner, states, search)).limit(limit)
        if before is not None:
            query = query.where(tuple_(runs.c.created_at, runs.c.run) < before)
        newest_first = query.order_by(runs.c.created_at.desc(), runs.c.run.desc())
        return self._read(lambda c: _runs(c, newest_first))

    def count_listed(self, owner: str | None, *, states: tuple[RunState, ...] = (), search: str = "") -> int:
        """Count the runs on all pages of such a listing."""
        query = select(func.count()).select_from(runs).where(*_filters(owner, states, search))
        return self._read(lambda c: c.scalar(query) or 0)

    def max_shards(self) -> int:
        """Return the largest number of shards of any run that is not over; 0 if there is none."""
        query = select(func.max(runs.c.shards)).where(runs.c.state.not_in(OVER))
        return self._read(lambda c: c.scalar(query) or 0)

    def version(self, run: str) -> int:
        """Return a number that grows with every change of the run, its tables or its progress.

        Renewing its lease or claiming its final step does not change it.
        """
        return self._read(lambda c: get_version(c, run))

    def renew_lease(self, run: str, lease_seconds: float) -> None:
        """Renew the client's lease. Raises `RunOver` if the run is over."""

        def renew(connection: Connection) -> None:
            expires_at = self._clock(connection) + lease_seconds
            if (state := lock_run(connection, run).state).is_over:
                raise RunOver(f"run {run} is {state}")
            connection.execute(update(runs).where(runs.c.run == run).values(lease_expires_at=expires_at))

        self._write(renew)

    def renew_open_runs(self, fence: Fence | None = None) -> None:
        """Give every open run at least its full lease again, after clients could not reach any gateway."""

        def renew(connection: Connection) -> None:
            full = self._clock(connection) + runs.c.lease_seconds
            is_shorter = (runs.c.state == RunState.OPEN) & (runs.c.lease_expires_at < full)
            locking = select(runs.c.run).where(is_shorter).order_by(runs.c.run).with_for_update()
            names = connection.scalars(locking).all()  # locked in the order of lock_states
            connection.execute(update(runs).where(runs.c.run.in_(names)).values(lease_expires_at=full))

        self._write_fenced(fence, renew)

    def runs_in(self, *states: RunState) -> list[Run]:
        """Return the runs in these states, oldest first."""
        return self._read(lambda c: runs_in(c, states))

    def count_runs(self, state: RunState) -> int:
        query = select(func.count()).where(runs.c.state == state)
        return self._read(lambda c: c.scalar(query) or 0)

    def expired_runs(self) -> list[Run]:
        """Return the open runs whose client's lease has expired."""

        def expired(connection: Connection) -> list[Run]:
            is_expired = runs.c.lease_expires_at <= self._clock(connection)
            query = select(*RUN_COLUMNS).where(runs.c.state == RunState.OPEN, is_expired)
            return _runs(connection, query.order_by(runs.c.lease_expires_at, runs.c.run))

        return self._read(expired)

    def move(self, run: str, to: RunState, error: str | None = None, fence: Fence | None = None) -> Run:
        """Change the run's state. Raises `IllegalTransition` if its state, read under a lock, cannot
        change to `to`."""
        return self._write_fenced(fence, lambda c: move_run(c, run, to, self._clock(c), error))

    def force_end(
        self,
        run: str,
        reason: str,
        only_if_expired: bool = False,
        fence: Fence | None = None,
        as_of: float | None = None,
    ) -> bool:
        """End a run; True if this call ended it, False if it was over or its lease was renewed meanwhile.

        With `only_if_expired` the lease must have expired both now and at `as_of`, so that a jump of the
        registry's clock after the caller read it ends no run.
        """

        def end(connection: Connection) -> bool:
            now = self._clock(connection)
            current = lock_run(connection, run)
            earlier = now if as_of is None else min(now, as_of)
            has_lease = current.state is not RunState.OPEN or current.lease_expires_at > earlier
            if current.state.is_over or (only_if_expired and has_lease):
                return False
            move_run(connection, run, RunState.ENDED, now, reason)
            return True

        return self._write_fenced(fence, end)

    def finished_before(self, moment: float, with_chunks: bool = False) -> list[Run]:
        """Return the runs that were over before `moment`, oldest first; `with_chunks`: only those that still
        have chunks or partials."""
        query = select(*RUN_COLUMNS).where(runs.c.state.in_(OVER), runs.c.finished_at < moment)
        if with_chunks:
            query = query.where(or_(*(exists().where(t.c.run == runs.c.run) for t in WORK_OF_RUN)))
        return self._read(lambda c: _runs(c, query.order_by(runs.c.finished_at, runs.c.run)))

    def purge_run(self, run: str, reason: str) -> bool:
        """Hide a run from its owner, and end it if it is not over; True if this call ended it. The janitor
        deletes it."""

        def purge(connection: Connection) -> bool:
            now = self._clock(connection)
            was_over = lock_run(connection, run).state.is_over
            if not was_over:
                move_run(connection, run, RunState.ENDED, now, reason)
            touch(connection, run, is_purged=True)
            return not was_over

        return self._write(purge)

    def purged_before(self, moment: float) -> list[Run]:
        """Return the purged runs that were over before `moment`."""
        query = select(*RUN_COLUMNS).where(runs.c.is_purged, runs.c.finished_at < moment)
        return self._read(lambda c: _runs(c, query.order_by(runs.c.finished_at, runs.c.run)))

    def delete_chunks(self, run: str) -> None:
        """Delete the chunks, log entries and partials of a run; its figures and progress stay.

        Raises `IllegalTransition` unless the run is over.
        """

        def remove(connection: Connection) -> None:
            _require_over(lock_run(connection, run))
            for table in (*WORK_OF_RUN, attempts):
                connection.execute(delete(table).where(table.c.run == run))

        self._write(remove)

    def delete_run(self, run: str) -> bool:
        """Delete a run with everything that belongs to it; False if there was none.

        Raises `IllegalTransition` unless the run is over.
        """

        def remove(connection: Connection) -> bool:
            try:
                _require_over(lock_run(connection, run))
            except RunNotFound:
                return False
            connection.execute(delete(runs).where(runs.c.run == run))  # deletes its other rows by cascade
            return True

        return self._write(remove)


def get_run(connection: Connection, run: str) -> Run:
    row = connection.execute(select(*RUN_COLUMNS).where(runs.c.run == run)).one_or_none()
    if row is None:
        raise RunNotFound(f"no run {run}")
    return _run(row)


def lock_run(connection: Connection, run: str) -> Run:
    """Return the run, locked until this transaction ends. (SQLite has only one writer anyway.)"""
    row = connection.execute(LOCK, {"run": run}).one_or_none()
    if row is None:
        raise RunNotFound(f"no run {run}")
    return _run(row)


def lock_states(connection: Connection, names: Collection[str]) -> dict[str, RunState]:
    """Lock the runs among `names` that exist, and return their states.

    Every transaction locks in the order of ids, so that two of them cannot deadlock.
    """
    query = select(runs.c.run, runs.c.state).where(runs.c.run.in_(sorted(names)))
    rows = connection.execute(query.order_by(runs.c.run).with_for_update())
    return {row.run: RunState(row.state) for row in rows}


def runs_in(connection: Connection, states: tuple[RunState, ...]) -> list[Run]:
    query = select(*RUN_COLUMNS).where(runs.c.state.in_(states))
    return _runs(connection, query.order_by(runs.c.created_at, runs.c.run))


def get_version(connection: Connection, run: str) -> int:
    version: int | None = connection.scalar(select(runs.c.version).where(runs.c.run == run))
    if version is None:
        raise RunNotFound(f"no run {run}")
    return version


def move_run(connection: Connection, run: str, to: RunState, now: float, error: str | None = None) -> Run:
    state = lock_run(connection, run).state
    if not can_move(state, to):
        raise IllegalTransition(f"run {run} is {state} and cannot become {to}")
    touch(connection, run, state=to, error=error, finished_at=now if to.is_over else None)
    return get_run(connection, run)


def touch(connection: Connection, run: str, **changes: Any) -> None:
    """Increase the run's version; every change of a run or of its rows calls this or `touch_all`."""
    connection.execute(update(runs).where(runs.c.run == run).values(version=runs.c.version + 1, **changes))


def touch_all(connection: Connection, names: Collection[str]) -> None:
    connection.execute(update(runs).where(runs.c.run.in_(names)).values(version=runs.c.version + 1))


def open_new_run(
    connection: Connection, run: Run, key: str | None, lease_seconds: float, max_open_runs: int | None
) -> Opened:
    """Store the run, or return the one that its owner opened with this key before."""
    lock_owner(connection, run.owner)
    if before := opened_before(connection, run, key):
        return Opened(before, is_new=False)
    insert_run(connection, run, key, lease_seconds, max_open_runs)
    return Opened(run, is_new=True)


def insert_run(
    connection: Connection, run: Run, key: str | None, lease_seconds: float, max_open_runs: int | None
) -> None:
    """Store a new run; the caller has locked its owner. Raises `TooManyRuns`."""
    if max_open_runs is not None and _count_open(connection, run.owner) >= max_open_runs:
        raise TooManyRuns(f"{max_open_runs} runs are open already, and no more are allowed at once")
    connection.execute(
        insert(runs).values(
            run=run.run,
            label=run.label,
            state=run.state,
            questions=json.dumps(run.questions, sort_keys=True),
            owner=run.owner,
            idempotency_key=key,
            shards=run.shards,
            created_at=run.created_at,
            lease_seconds=lease_seconds,
            lease_expires_at=run.lease_expires_at,
            version=1,
            data_set=run.data and run.data.data_set,
            data=run.data and json.dumps(run.data.to_dict()),
        )
    )
    connection.execute(
        insert(run_tables),
        [
            {"run": run.run, "table_name": table, "chunks": 0, "rows": 0, "rejected": 0}
            for table in QuestionSet.from_dict(run.questions).tables
        ],
    )


def lock_owner(connection: Connection, owner: str) -> None:
    """Serialize the openings by one owner, so that keys and limits hold."""
    adding = upsert(connection, owners).values(owner=owner, runs_opened=1)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[owners.c.owner], set_={"runs_opened": owners.c.runs_opened + 1}
        )
    )


def opened_before(connection: Connection, run: Run, key: str | None) -> Run | None:
    """Return the run that the owner opened with this key. Raises `IdempotencyConflict` if it differs."""
    if key is None:
        return None
    query = select(*RUN_COLUMNS).where(runs.c.owner == run.owner, runs.c.idempotency_key == key)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    before = _run(row)
    if before.label != run.label or not (_has_same_questions(before, run) and _has_same_data(before, run)):
        raise IdempotencyConflict(
            f"key {key!r} opened run {before.run} with other questions, label or data set"
        )
    return before


def _has_same_data(one: Run, other: Run) -> bool:
    """Whether both send to, or ask, the same data set. The newest version may be another one by now."""
    if one.data is None or other.data is None:
        return one.data is other.data
    return (one.data.name, one.data.is_upload) == (other.data.name, other.data.is_upload)


def _has_same_questions(one: Run, other: Run) -> bool:
    """Compares their meaning, since another version may store questions in another form."""
    return one.questions == other.questions or (
        QuestionSet.of_run(one.questions) == QuestionSet.of_run(other.questions)
    )


def _count_open(connection: Connection, owner: str) -> int:
    query = select(func.count()).where(runs.c.owner == owner, runs.c.state == RunState.OPEN)
    return connection.scalar(query) or 0


def _filters(owner: str | None, states: tuple[RunState, ...], search: str) -> Iterator[ColumnElement[bool]]:
    """Conditions of a listing; an argument that is None or empty does not restrict it."""
    yield runs.c.is_purged.is_(False)
    if owner is not None:
        yield runs.c.owner == owner
    if states:
        yield runs.c.state.in_(states)
    if search:
        has_id = runs.c.run.startswith(search.lower(), autoescape=True)
        yield or_(runs.c.label.icontains(search, autoescape=True), has_id)


def _require_over(run: Run) -> None:
    if not run.state.is_over:
        raise IllegalTransition(f"run {run.run} is {run.state}: only a run that is over can be deleted")


def _runs(connection: Connection, query: Select[Any]) -> list[Run]:
    return [_run(row) for row in connection.execute(query)]


def _run(row: Row[Any]) -> Run:
    columns = row._asdict()
    columns["state"] = RunState(columns["state"])
    columns["questions"] = json.loads(columns["questions"])
    if columns["data"] is not None:
        columns["data"] = DataUse.from_dict(json.loads(columns["data"]))
    return Run(**columns)
