"""Data sets and their versions: creating, listing, dropping.

Whatever adds a version or a file, uses a file in a run, or removes one, first locks the row of the data set.
Locks are taken in this order: the owner, the run, the data set, the counters of lanes.
"""

import json
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from kopitiam.contracts.data_sets import Changes, DataFile, DataSet, DataVersion, new_file_id
from kopitiam.contracts.errors import DataSetNotFound, TooManyDataSets
from kopitiam.registry.data_schema import data_files, data_sets, data_versions, version_files
from kopitiam.registry.schema import runs
from kopitiam.registry.transactions import RegistryBase

FILE_COLUMNS = (
    data_files.c.table_name.label("table"),
    *(
        data_files.c[name]
        for name in (
            "name", "digest", "bytes", "columns", "file", "run", "chunks", "rows", "rejected", "is_ended",
        )
    ),
)  # fmt: skip


class DataSetTransactions(RegistryBase):
    def data_sets(self, owner: str | None) -> list[DataSet]:
        """Return the data sets of an owner, or of all, by name, with the versions that are kept."""
        query = select(data_sets).where(data_sets.c.is_dropped.is_(False))
        if owner is not None:
            query = query.where(data_sets.c.owner == owner)
        by_name = query.order_by(data_sets.c.name, data_sets.c.owner)
        return self._read(lambda c: [_data_set(c, row) for row in c.execute(by_name).all()])

    def data_set(self, owner: str, name: str) -> DataSet:
        """Return a data set. Raises `DataSetNotFound`."""
        return self._read(lambda c: _data_set(c, find_data_set(c, owner, name)))

    def version_files(self, data_set: str, number: int) -> list[DataFile]:
        """Return the files of a version, by table and name; none if the version is not kept any more."""
        return self._read(lambda c: files_of_version(c, data_set, number))

    def drop_data_set(self, owner: str, name: str) -> list[str]:
        """Delete the versions of a data set and free its name; the janitor removes its files.

        Returns the runs that sent files to it or asked it and were not deleted yet. Raises `DataSetNotFound`.
        """

        def drop(connection: Connection) -> list[str]:
            id_ = find_data_set(connection, owner, name, is_locked=True).id
            connection.execute(delete(data_versions).where(data_versions.c.data_set == id_))
            changes = {"is_dropped": True, "name": f"~{id_}"}  # which is no valid name
            connection.execute(update(data_sets).where(data_sets.c.id == id_).values(changes))
            of_it = (runs.c.data_set == id_) & runs.c.is_purged.is_(False)
            return list(connection.scalars(select(runs.c.run).where(of_it)))

        return self._write(drop)


def find_data_set(connection: Connection, owner: str, name: str, *, is_locked: bool = False) -> Row[Any]:
    query: Select[Any] = select(data_sets).where(data_sets.c.owner == owner, data_sets.c.name == name)
    row = connection.execute(query.with_for_update() if is_locked else query).one_or_none()
    if row is None:
        raise DataSetNotFound(f"no data set {name}")
    return row


def lock_data_set(connection: Connection, data_set: str) -> Row[Any]:
    """Return the row of a data set, locked until this transaction ends. Raises `DataSetNotFound` if it was
    dropped."""
    query = select(data_sets).where(data_sets.c.id == data_set, data_sets.c.is_dropped.is_(False))
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        raise DataSetNotFound("the data set of this run was dropped")
    return row


def find_or_create(connection: Connection, owner: str, name: str, max_data_sets: int, now: float) -> Row[Any]:
    """The caller has locked the owner. Raises `TooManyDataSets`."""
    try:
        return find_data_set(connection, owner, name, is_locked=True)
    except DataSetNotFound:
        is_theirs = (data_sets.c.owner == owner) & data_sets.c.is_dropped.is_(False)
        if (connection.scalar(select(func.count()).where(is_theirs)) or 0) >= max_data_sets:
            raise TooManyDataSets(f"{max_data_sets} data sets are there already; drop one first") from None
        values = {"id": new_file_id(), "name": name, "owner": owner, "created_at": now, "newest": 0}
        connection.execute(insert(data_sets).values(values))
        return find_data_set(connection, owner, name, is_locked=True)


def files_of_version(connection: Connection, data_set: str, number: int) -> list[DataFile]:
    is_of_version = (version_files.c.data_set == data_set) & (version_files.c.number == number)
    query = (
        select(*FILE_COLUMNS)
        .join_from(version_files, data_files, version_files.c.file == data_files.c.file)
        .where(is_of_version)
    )
    return list_files(connection, query)


def list_files(connection: Connection, query: Select[Any]) -> list[DataFile]:
    ordered = query.order_by(data_files.c.table_name, data_files.c.name, data_files.c.file)
    return [_data_file(row) for row in connection.execute(ordered)]


def get_changes(connection: Connection, data_set: str, number: int) -> Changes:
    """Return what the version changed. Raises `DataSetNotFound` if it is not kept."""
    query = select(data_versions.c.changes).where(
        data_versions.c.data_set == data_set, data_versions.c.number == number
    )
    text = connection.scalar(query)
    if text is None:
        raise DataSetNotFound(f"version {number} does not exist, or is not kept any more")
    return Changes(**json.loads(text)["counts"])


def changes_text(changes: Changes, added: list[str], replaced: list[str]) -> str:
    return json.dumps({"counts": asdict(changes), "added": added, "replaced": replaced})


def _data_set(connection: Connection, row: Row[Any]) -> DataSet:
    query = select(data_versions).where(data_versions.c.data_set == row.id)
    versions = connection.execute(query.order_by(data_versions.c.number.desc()))
    return DataSet(row.id, row.name, row.owner, row.created_at, tuple(map(_version, versions)))


def _version(row: Row[Any]) -> DataVersion:
    changes = json.loads(row.changes)
    paths = tuple(changes["added"]), tuple(changes["replaced"])
    return DataVersion(row.number, row.run, row.created_at, Changes(**changes["counts"]), *paths)


def _data_file(row: Row[Any]) -> DataFile:
    columns = row._asdict()
    columns["columns"] = tuple(json.loads(columns["columns"]))
    return DataFile(**columns)
