"""Runs over data sets: opened to send files or to ask, and sealed with the version that they answer over.

A seal makes the next version and gives the run its work in one transaction. Files whose partials were kept
are used by reference; `attaching` has the rules.
"""

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, update

from kopitiam.contracts.data_sets import DataFile, DataRequest, DataUse, changes_between
from kopitiam.contracts.errors import DataMissing, DataSetNotFound, FilesIncomplete, RunOver, VersionConflict
from kopitiam.contracts.runs import Run, RunState, new_run_id
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.attaching import attach
from kopitiam.registry.data_files import files_of_run
from kopitiam.registry.data_schema import data_sets, data_versions, version_files
from kopitiam.registry.data_sets import (
    changes_text,
    files_of_version,
    find_data_set,
    find_or_create,
    get_changes,
    lock_data_set,
)
from kopitiam.registry.records import Opened, require_counts
from kopitiam.registry.runs import get_run, insert_run, lock_owner, lock_run, opened_before
from kopitiam.registry.transactions import RegistryBase

_SHOWN = 3  # files in a message


class DataRunTransactions(RegistryBase):
    def open_data_run(
        self,
        questions: dict[str, Any],
        label: str,
        owner: str,
        data: DataRequest,
        *,
        idempotency_key: str | None,
        lease_seconds: float,
        shards: int,
        max_open_runs: int | None = None,
        max_data_sets: int = 1,
    ) -> Opened:
        """Open a run that sends files to a data set, or one that asks it, which is sealed at once.

        Raises as `open_run`, and `TooManyDataSets`, `DataSetNotFound` or `DataMissing`.
        """
        require_counts(other_shards=shards - 1, version=data.version or 0)
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
                data=DataUse("", data.name, data.is_upload, 0),
            )
            lock_owner(connection, owner)
            if before := opened_before(connection, run, idempotency_key):
                return Opened(before, is_new=False)
            use = _use(connection, owner, data, max_data_sets, now)
            run = replace(run, data=use)
            insert_run(connection, run, idempotency_key, lease_seconds, max_open_runs)
            if not data.is_upload:
                _ask(connection, run, use, now)
            return Opened(get_run(connection, name), is_new=True)

        return self._write(opened)

    def seal_run(self, run: str, seen: int | None = None) -> Run:
        """Make the next version of the data set from the newest one and the files of the run, and seal the
        run over it. Without a change there is no new version. A repeated call changes nothing.

        `seen` is the version that the client builds on. Raises `VersionConflict` if it is not the newest any
        more, `FilesIncomplete`, `DataMissing`, or `RunOver`.
        """

        def seal(connection: Connection) -> Run:
            now = self._clock(connection)
            current = lock_run(connection, run)
            if current.state in (RunState.FAILED, RunState.ENDED):
                raise RunOver(f"run {run} is {current.state}")
            if current.state is RunState.OPEN:
                _seal(connection, current, seen, now)
            return get_run(connection, run)

        return self._write(seal)


def _use(connection: Connection, owner: str, data: DataRequest, max_data_sets: int, now: float) -> DataUse:
    if data.is_upload:
        row = find_or_create(connection, owner, data.name, max_data_sets, now)
        seen = row.newest if data.version is None else data.version
        return DataUse(row.id, data.name, is_upload=True, seen=seen)
    row = find_data_set(connection, owner, data.name, is_locked=True)
    version = row.newest if data.version is None else data.version
    if not row.newest:
        raise DataSetNotFound(f"data set {data.name} has no version yet")
    try:
        changes = get_changes(connection, row.id, version)
    except DataSetNotFound as error:
        raise DataSetNotFound(f"data set {data.name}: {error}") from None
    return DataUse(row.id, data.name, is_upload=False, seen=row.newest, version=version, changes=changes)


def _ask(connection: Connection, run: Run, use: DataUse, now: float) -> None:
    assert use.version is not None
    files = files_of_version(connection, use.data_set, use.version)
    require_kept(use.name, QuestionSet.of_run(run.questions), files)
    attach(connection, run, files, use, now)


def _seal(connection: Connection, run: Run, seen: int | None, now: float) -> None:
    use = run.data
    assert use is not None
    newest = lock_data_set(connection, use.data_set).newest
    if (use.seen if seen is None else seen) != newest:
        raise VersionConflict(
            f"another client has made version {newest} of data set {use.name} meanwhile", newest
        )
    named = files_of_run(connection, run.run)
    if unended := [file.path for file in named if not file.is_ended]:
        raise FilesIncomplete(f"without END: {_some(unended)}")
    before = files_of_version(connection, use.data_set, newest)
    after = list(({file.key: file for file in before} | {file.key: file for file in named}).values())
    require_kept(use.name, QuestionSet.of_run(run.questions), after)
    changes = changes_between(before, after)
    version = newest
    if changes.added or changes.replaced:
        version = newest + 1
        _add_version(connection, run, version, (before, after), now)
    sealed = DataUse(use.data_set, use.name, True, newest, version, changes)
    attach(connection, run, after, sealed, now)


def _add_version(
    connection: Connection,
    run: Run,
    number: int,
    files: tuple[list[DataFile], list[DataFile]],
    now: float,
) -> None:
    assert run.data is not None
    before, after = files
    data_set, old = run.data.data_set, {file.key: file.file for file in before}
    changed = [file for file in after if old.get(file.key) != file.file]
    text = changes_text(
        changes_between(before, after),
        added=[file.path for file in changed if file.key not in old],
        replaced=[file.path for file in changed if file.key in old],
    )
    values = {"data_set": data_set, "number": number, "run": run.run, "created_at": now, "changes": text}
    connection.execute(insert(data_versions).values(values))
    connection.execute(
        insert(version_files),
        [{"data_set": data_set, "number": number, "file": file.file} for file in after],
    )
    connection.execute(update(data_sets).where(data_sets.c.id == data_set).values(newest=number))


def require_kept(name: str, question_set: QuestionSet, files: list[DataFile]) -> None:
    """Raise `DataMissing` if the files lack a table or a column that a question needs."""
    for table, form in question_set.tables.items():
        of_table = [file for file in files if file.table == table]
        if not of_table:
            raise DataMissing(f"data set {name} has no file of table {table}; send one with --data {name}")
        for column in form.columns:
            if lacking := [file.name for file in of_table if column.name not in file.columns]:
                raise DataMissing(
                    f"data set {name} did not keep {table}.{column.name} of {_some(lacking)}; to keep every "
                    f"column, send the files again with: kopi submit DIR --data {name} --columns all"
                )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
