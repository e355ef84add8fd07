"""The files that a run sends to a data set: named, sent in chunks, ended. And the chunks that a run reads.

A chunk of a file is kept in `data_chunks`; if a question of the run needs its table, it is also put into the
log, and processed while the rest is sent.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, text, update

from kopitiam.contracts.batches import lane_at
from kopitiam.contracts.data_sets import DataFile, SourceFile, new_file_id, shard_of_file
from kopitiam.contracts.errors import DataSetNotFound, FileConflict, RunOver, TableSealed, TooManyDataSets
from kopitiam.contracts.runs import ChunkRecord, Origin, Run, RunState, TableState
from kopitiam.registry.chunks import RENEW, RENEW_AND_TOUCH, run_chunks, spans_of, take_sequence
from kopitiam.registry.data_schema import data_chunks, data_files, run_files, version_files
from kopitiam.registry.data_sets import FILE_COLUMNS, list_files, lock_data_set
from kopitiam.registry.records import Ended, Registered, require_counts, require_table
from kopitiam.registry.runs import get_run, lock_run, touch
from kopitiam.registry.schema import chunks
from kopitiam.registry.tables import compare_end
from kopitiam.registry.transactions import RegistryBase

MOST_FILES = 10_000  # that one run may name
COUNT_NEEDED = text("""
    UPDATE run_tables SET chunks = chunks + 1, rows = rows + :rows, rejected = rejected + :rejected
    WHERE run = :run AND table_name = :table
    RETURNING chunks
""")


class DataFileTransactions(RegistryBase):
    def name_files(self, run: str, files: Sequence[SourceFile]) -> list[DataFile]:
        """Record files that a run adds to its data set or replaces in it. Idempotent.

        A file that the data set has in these bytes, with at least these columns, in any version, is returned
        with the run that sent it; any other is new, and this run has to send it. Raises `FileConflict` if a
        file was named before with other bytes or columns.
        """
        for file in files:
            require_table(file.table)
            require_counts(bytes=file.bytes)

        def name(connection: Connection) -> list[DataFile]:
            current = _lock_open_run(connection, run)
            assert current.data is not None
            lock_data_set(connection, current.data.data_set)  # no file that is used here is removed meanwhile
            named = {file.key: file for file in files_of_run(connection, run)}
            recorded = []
            for file in files:
                if file.key not in named:
                    named[file.key] = _add_file(connection, current, file)
                if not _is_same(named[file.key], file):
                    raise FileConflict(f"{file.path} was named before with other bytes or columns")
                recorded.append(named[file.key])
            if len(named) > MOST_FILES:
                raise TooManyDataSets(f"one run may name {MOST_FILES:,} files; send them in several runs")
            touch(connection, run)
            return recorded

        return self._write(name)

    def run_files(self, run: str) -> list[DataFile]:
        """Return the files that a run has named; when it is sealed, those that it answers over."""

        def list_run_files(connection: Connection) -> list[DataFile]:
            get_run(connection, run)
            return files_of_run(connection, run)

        return self._read(list_run_files)

    def sent_file(self, run: str, file: str) -> DataFile:
        """Return a file that this run sends. Raises `DataSetNotFound` for any other."""
        return self._read(lambda c: _sent_file(c, run, file))

    def register_file_chunk(
        self,
        run: str,
        file: str,
        number: int,
        *,
        digest: str,
        rows: int,
        bytes: int,
        rejected: int,
        landed: str | None = None,
        is_beside: bool = False,
    ) -> Registered:
        """As `register_chunk`, for a chunk of a file that the run sends to a data set."""
        require_counts(number=number, rows=rows, bytes=bytes, rejected=rejected)
        figures = {"rows": rows, "bytes": bytes, "rejected": rejected}
        body = {"number": number, "digest": digest, "landed": landed, "is_beside": is_beside, **figures}
        return self._write(lambda c: _register(c, run, file, body, self._clock(c)))

    def file_chunks(self, file: str) -> list[ChunkRecord]:
        """Return the durable chunks of a file, by number."""
        return self._read(lambda c: recorded_chunks(c, file))

    def end_file(self, run: str, file: str, chunks: int, rows: int, rejected: int = 0) -> Ended:
        """As `end_table`, for a file: it accepts no more chunks, and may become part of a version."""
        require_counts(chunks=chunks, rows=rows, rejected=rejected)
        return self._write(lambda c: _end_file(c, run, file, (chunks, rows), rejected))

    def table_chunks(self, run: str, table: str) -> list[ChunkRecord]:
        """Return the chunks of a table that the run answers over: of a sealed run over a data set, those of
        all files of its version."""
        require_table(table)

        def list_chunks(connection: Connection) -> list[ChunkRecord]:
            if get_run(connection, run).data is None:
                return run_chunks(connection, run, table)
            query = _chunks_query().join(run_files, run_files.c.file == data_files.c.file)
            is_needed = (run_files.c.run == run) & (data_files.c.table_name == table)
            order = (data_files.c.name, data_chunks.c.file, data_chunks.c.number)
            return [_record(row) for row in connection.execute(query.where(is_needed).order_by(*order))]

        return self._read(list_chunks)


def files_of_run(connection: Connection, run: str) -> list[DataFile]:
    query = select(*FILE_COLUMNS).join_from(run_files, data_files, run_files.c.file == data_files.c.file)
    return list_files(connection, query.where(run_files.c.run == run))


def recorded_chunks(connection: Connection, file: str) -> list[ChunkRecord]:
    query = _chunks_query().where(data_chunks.c.file == file)
    return [_record(row) for row in connection.execute(query.order_by(data_chunks.c.number))]


def _lock_open_run(connection: Connection, run: str) -> Run:
    current = lock_run(connection, run)
    if current.state is not RunState.OPEN:
        raise RunOver(f"run {run} is {current.state} and accepts no more files")
    return current


def _add_file(connection: Connection, run: Run, file: SourceFile) -> DataFile:
    assert run.data is not None
    known = _find_held(connection, run.data.data_set, file)
    if known is None:
        known = DataFile(**asdict(file), file=new_file_id(), run=run.run)
        values = asdict(known)
        values["table_name"] = values.pop("table")
        values["columns"] = json.dumps(file.columns)
        connection.execute(insert(data_files).values(data_set=run.data.data_set, **values))
    connection.execute(insert(run_files).values(run=run.run, file=known.file))
    return known


def _find_held(connection: Connection, data_set: str, file: SourceFile) -> DataFile | None:
    """Return a file with these bytes and at least these columns, preferably of a late version."""
    newest = (
        select(func.coalesce(func.max(version_files.c.number), 0))
        .where(version_files.c.file == data_files.c.file)
        .correlate(data_files)
        .scalar_subquery()
    )
    query = select(*FILE_COLUMNS).where(
        data_files.c.data_set == data_set,
        data_files.c.table_name == file.table,
        data_files.c.name == file.name,
        data_files.c.digest == file.digest,
        data_files.c.is_ended,
        data_files.c.is_removed.is_(False),
    )
    held = list_files(connection, query.order_by(newest.desc()))
    return next((each for each in held if set(each.columns) >= set(file.columns)), None)


def _is_same(known: DataFile, file: SourceFile) -> bool:
    return known.digest == file.digest and set(known.columns) >= set(file.columns)


def _sent_file(connection: Connection, run: str, file: str) -> DataFile:
    query = select(*FILE_COLUMNS).where(data_files.c.file == file, data_files.c.run == run)
    files = list_files(connection, query)
    if not files:
        raise DataSetNotFound(f"run {run} does not send a file {file}")
    return files[0]


def _register(connection: Connection, run: str, file: str, body: dict[str, Any], now: float) -> Registered:
    current = lock_run(connection, run)
    if current.state.is_over:
        raise RunOver(f"run {run} is {current.state}")
    sent = _sent_file(connection, run, file)
    query = _chunks_query().where(data_chunks.c.file == file, data_chunks.c.number == body["number"])
    if row := connection.execute(query).one_or_none():
        connection.execute(RENEW, {"run": run, "now": now})
        known = _record(row)
        return Registered("same" if known.digest == body["digest"] else "conflict", known)
    if current.state is not RunState.OPEN:
        raise RunOver(f"run {run} is {current.state} and accepts no more chunks")
    if sent.is_ended:
        raise TableSealed(f"{sent.path} has had its END, without a chunk {body['number']}")
    shard = shard_of_file(file, body["number"], current.shards)
    connection.execute(insert(data_chunks).values(file=file, shard=shard, **body))
    _count(connection, file, body)
    connection.execute(RENEW_AND_TOUCH, {"run": run, "now": now})
    chunk = _record(connection.execute(query).one())
    return Registered("stored", _log_if_needed(connection, run, chunk))


def _count(connection: Connection, file: str, body: dict[str, Any]) -> None:
    columns = data_files.c
    counting = update(data_files).where(columns.file == file)
    connection.execute(
        counting.values(
            chunks=columns.chunks + 1,
            rows=columns.rows + body["rows"],
            rejected=columns.rejected + body["rejected"],
        )
    )


def _log_if_needed(connection: Connection, run: str, chunk: ChunkRecord) -> ChunkRecord:
    """Put the chunk into the log if the run has its table, which means that a question needs it."""
    assert chunk.origin is not None
    counts = {"run": run, "table": chunk.table, "rows": chunk.rows, "rejected": chunk.rejected}
    count = connection.execute(COUNT_NEEDED, counts).scalar_one_or_none()
    if count is None:
        return chunk
    lane = lane_at(chunk.origin.shard, count - 1)
    logged = replace(chunk, lane=lane, sequence=take_sequence(connection, lane))
    connection.execute(insert(chunks).values(log_row(run, logged, count - 1)))
    return logged


def log_row(run: str, chunk: ChunkRecord, number: int) -> dict[str, Any]:
    """Return the row of a data set's chunk in the log of a run; `number` is its number in the run."""
    values = asdict(chunk)
    origin = values.pop("origin")
    values["table_name"] = values.pop("table")
    values["number"] = number
    return {
        "run": run,
        "origin": origin["file"],
        "origin_shard": origin["shard"],
        "origin_number": origin["number"],
        **values,
    }


def _end_file(connection: Connection, run: str, file: str, figures: tuple[int, int], rejected: int) -> Ended:
    current = lock_run(connection, run)
    if current.state in (RunState.FAILED, RunState.ENDED):
        raise RunOver(f"run {run} is {current.state}")
    sent = _sent_file(connection, run, file)
    if sent.is_ended:
        is_same = (sent.chunks, sent.rows) == figures
        return Ended("sealed" if is_same else "conflict", sent.chunks, sent.rows, *figures)
    durable = spans_of(connection, data_chunks.c.number, data_chunks.c.file == file)
    ended = compare_end(durable, TableState(sent.chunks, sent.rows), figures)
    if ended.sealed:
        changes = {"is_ended": True, "rejected": data_files.c.rejected + rejected}
        connection.execute(update(data_files).where(data_files.c.file == file).values(changes))
        touch(connection, run)
    return ended


def _chunks_query() -> Select[Any]:
    return select(data_files.c.table_name, data_chunks).join_from(
        data_chunks, data_files, data_chunks.c.file == data_files.c.file
    )


def _record(row: Row[Any]) -> ChunkRecord:
    """The lane is that of its shard where it lies; a log has another one."""
    figures = (row.digest, row.rows, row.bytes, row.rejected)
    origin = Origin(row.file, row.shard, row.number)
    return ChunkRecord(row.table_name, row.number, *figures, row.shard, 0, row.landed, row.is_beside, origin)
