"""Partials that are kept for later runs, and the removal of everything that no version and no run needs.

What is removed is marked first, in a transaction that finds no use of it; nothing begins to use it then.
Its files are removed, and its rows come last: after a crash in between, the janitor goes on from the marks.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)

from kopitiam.contracts.batches import kind_of
from kopitiam.contracts.runs import OVER, Run
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.data_schema import (
    data_files,
    data_sets,
    data_versions,
    file_progress,
    kept_partials,
    kept_plans,
    run_files,
    used_partials,
    version_files,
)
from kopitiam.registry.schema import partials, runs
from kopitiam.registry.transactions import RegistryBase


@dataclass(frozen=True)
class Garbage:
    """What is marked for removal: data files with everything that belongs to them, and partials."""

    files: tuple[str, ...] = ()
    plans: tuple[tuple[str, str], ...] = ()  # file and key of the plan
    partials: tuple[str, ...] = ()  # paths

    def __bool__(self) -> bool:
        return bool(self.files or self.plans)


class KeepingTransactions(RegistryBase):
    def discard_partials(self, paths: Iterable[str]) -> None:
        """Mark the plans of these kept partials for removal: their files differ from what was committed."""
        names = list(paths)
        of_path = exists().where(
            kept_partials.c.file == kept_plans.c.file,
            kept_partials.c.plan == kept_plans.c.plan,
            kept_partials.c.path.in_(names),
        )
        marking = update(kept_plans).where(of_path).values(is_removed=True)
        self._write(lambda c: c.execute(marking))

    def collect(self, keep_versions: int, keep_plans: int, settled_before: float) -> Garbage:
        """Delete versions beyond the newest `keep_versions`, mark the files that no version and no run needs,
        and the plans of a file beyond the last `keep_plans` used ones. Return everything that is marked.

        A run needs its files until it is over, and a short while longer, since a pipeline may still be
        writing: until `settled_before`.
        """
        unsettled = ~(runs.c.state.in_(OVER) & (runs.c.finished_at < settled_before))

        def has_work(connection: Connection) -> bool:
            conditions = (
                select(data_versions.c.number).where(_is_old(keep_versions)),
                select(data_files.c.file).where(_is_unused(unsettled) | data_files.c.is_removed),
                select(kept_plans.c.file).where(kept_plans.c.is_removed),
                select(data_sets.c.id).where(_is_empty(unsettled)),
            )
            return any(connection.execute(query.limit(1)).first() for query in conditions) or bool(
                _surplus_plans(connection, keep_plans, unsettled)
            )

        def mark(connection: Connection) -> Garbage:
            _lock_all(connection)
            connection.execute(delete(data_versions).where(_is_old(keep_versions)))
            connection.execute(update(data_files).where(_is_unused(unsettled)).values(is_removed=True))
            for file, plan in _surplus_plans(connection, keep_plans, unsettled):
                is_it = (kept_plans.c.file == file) & (kept_plans.c.plan == plan)
                connection.execute(update(kept_plans).where(is_it).values(is_removed=True))
            connection.execute(delete(data_sets).where(_is_empty(unsettled)))
            return _marked(connection)

        return self._write(mark) if self._read(has_work) else Garbage()

    def forget(self, garbage: Garbage) -> None:
        """Delete the rows of what was marked, after its files are removed."""

        def delete_rows(connection: Connection) -> None:
            is_file = data_files.c.file.in_(garbage.files) & data_files.c.is_removed
            connection.execute(delete(data_files).where(is_file))
            is_plan = (
                tuple_(kept_plans.c.file, kept_plans.c.plan).in_(garbage.plans) & kept_plans.c.is_removed
            )
            connection.execute(delete(kept_plans).where(is_plan))

        if garbage:
            self._write(delete_rows)

    def is_known(self, owner: str) -> bool:
        """Whether there is a run or a data file with this id."""
        queries = (
            select(runs.c.run).where(runs.c.run == owner),
            select(data_files.c.file).where(data_files.c.file == owner),
        )
        return self._read(lambda c: any(c.scalar(query) is not None for query in queries))


def keep_partials(connection: Connection, run: Run, now: float) -> None:
    """Keep the partials that a run has computed from files of its data set, unless another run was first.

    Called when the answers are published: every chunk of these files has then been processed.
    """
    if run.data is None:
        return
    locking = select(data_sets.c.id).where(data_sets.c.id == run.data.data_set).with_for_update()
    connection.execute(locking).all()  # one run at a time
    question_set = QuestionSet.of_run(run.questions)
    keys = {plan.name: plan.key(question_set.parameters) for plan in question_set.partials}
    counts = _counts(connection, run.run)
    is_there = data_files.c.file.in_({file for file, _ in counts}) & data_files.c.is_removed.is_(False)
    files = set(connection.scalars(select(data_files.c.file).where(is_there)))
    known = select(kept_plans.c.file, kept_plans.c.plan).where(kept_plans.c.file.in_(files))
    before = {(row.file, row.plan) for row in connection.execute(known)}
    new = {
        (file, keys[plan]): by_step
        for (file, plan), by_step in counts.items()
        if file in files and (file, keys[plan]) not in before
    }
    if new:
        values = [
            {"file": file, "plan": key, "counts": json.dumps(by_step), "used_at": now}
            for (file, key), by_step in new.items()
        ]
        connection.execute(insert(kept_plans), values)
        _move_partials(connection, run.run, keys, new)


def _counts(connection: Connection, run: str) -> dict[tuple[str, str], list[dict[int, int]]]:
    """Rows by file and plan: for each step, by shard."""
    query = select(file_progress).where(file_progress.c.run == run).order_by(file_progress.c.step)
    counts: dict[tuple[str, str], dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in connection.execute(query):
        counts[row.file, row.plan][row.step][row.shard] = row.rows
    return {key: list(by_step.values()) for key, by_step in counts.items()}


def _move_partials(
    connection: Connection, run: str, keys: dict[str, str], new: Collection[tuple[str, str]]
) -> None:
    query = select(partials).where(partials.c.run == run, partials.c.origin.is_not(None))
    kept = [
        {"path": row.path, "file": row.origin, "plan": keys[kind_of(row.path)], "rows": row.rows}
        for row in connection.execute(query)
        if (row.origin, keys.get(kind_of(row.path))) in new
    ]
    if kept:
        connection.execute(insert(kept_partials), kept)
        connection.execute(delete(partials).where(partials.c.path.in_([row["path"] for row in kept])))


def _lock_all(connection: Connection) -> None:
    """Wait for transactions that use files of data sets, and keep others out."""
    connection.execute(select(data_sets.c.id).order_by(data_sets.c.id).with_for_update()).all()


def _is_old(keep_versions: int) -> ColumnElement[bool]:
    """SQL condition for a version beyond the newest ones."""
    newest = select(data_sets.c.newest).where(data_sets.c.id == data_versions.c.data_set).scalar_subquery()
    return data_versions.c.number <= newest - keep_versions


def _is_unused(unsettled: ColumnElement[bool]) -> ColumnElement[bool]:
    """SQL condition for a data file that no version has and no run needs."""
    of_run = and_(run_files.c.file == data_files.c.file, run_files.c.run == runs.c.run, unsettled)
    return and_(
        data_files.c.is_removed.is_(False),
        ~exists().where(version_files.c.file == data_files.c.file),
        ~exists().where(of_run),
    )


def _surplus_plans(
    connection: Connection, keep_plans: int, unsettled: ColumnElement[bool]
) -> list[tuple[str, str]]:
    newest_first = (kept_plans.c.used_at.desc(), kept_plans.c.plan)
    place = func.row_number().over(partition_by=kept_plans.c.file, order_by=newest_first)
    ranked = (
        select(kept_plans.c.file, kept_plans.c.plan, place.label("place"))
        .where(kept_plans.c.is_removed.is_(False))
        .subquery()
    )
    is_used = exists().where(
        kept_partials.c.file == ranked.c.file,
        kept_partials.c.plan == ranked.c.plan,
        used_partials.c.path == kept_partials.c.path,
        used_partials.c.run == runs.c.run,
        unsettled,
    )
    query = select(ranked.c.file, ranked.c.plan).where(ranked.c.place > keep_plans, ~is_used)
    return [(row.file, row.plan) for row in connection.execute(query)]


def _is_empty(unsettled: ColumnElement[bool]) -> ColumnElement[bool]:
    """SQL condition for a data set that was dropped, or whose first upload ended before its seal."""

    def is_of(table: Table) -> ColumnElement[bool]:
        return exists().where(table.c.data_set == data_sets.c.id)

    of_run = exists().where(runs.c.data_set == data_sets.c.id, unsettled)
    return ~is_of(data_versions) & ~is_of(data_files) & ~of_run


def _marked(connection: Connection) -> Garbage:
    files = tuple(connection.scalars(select(data_files.c.file).where(data_files.c.is_removed)))
    query: Any = select(kept_plans.c.file, kept_plans.c.plan).where(kept_plans.c.is_removed)
    plans = tuple((row.file, row.plan) for row in connection.execute(query))
    of_plans = tuple_(kept_partials.c.file, kept_partials.c.plan).in_(plans)
    paths = connection.scalars(select(kept_partials.c.path).where(of_plans)) if plans else ()
    return Garbage(files, plans, tuple(paths))
