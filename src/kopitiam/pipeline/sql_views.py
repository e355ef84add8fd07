"""The session in which a user's query runs: one view for each table that it reads, and nothing else to read.

The views have exactly the files of a version. Money is DECIMAL(19,4), computed from whole ten-thousandths.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.data_sets import DataFile
from kopitiam.contracts.errors import DataMissing, QuestionError, RunFailed
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord
from kopitiam.contracts.tables import Column as TableColumn
from kopitiam.contracts.tables import Kind, Table
from kopitiam.landing.chunks import chunk_key, inspect
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.tables import BROADCAST_BYTES, BROADCAST_ROWS, NUMBER_BYTES, read_table, table_size
from kopitiam.questions.layout import LAYOUT
from kopitiam.storage.port import Key

_FILES_AT_ONCE = 8
# A task looks whether it is cancelled when it reads a file, a shuffle, or a buffer that may go to disk, but
# not in a loop over rows in memory. Buffers of joins are thus small, and at most `MOST_JOINS` are nested.
_JOINED_ROWS = "8"
_WINDOW_ROWS = "256"
_MOST_LOOPS = 1_000_000  # over the rows of broadcasts, for each row that is read
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A text such as '${env:HOME}' would become a variable of the environment or a setting of the service.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    # What is broadcast is held in memory; `require_small_broadcasts` bounds what has to be.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    # Its time grows exponentially with the aliases of a query.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.execution.topKSortFallbackThreshold": "100",  # more rows are sorted with files, not in memory
    "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": _JOINED_ROWS,
    "spark.sql.cartesianProductExec.buffer.in.memory.threshold": "1",
    "spark.sql.windowExec.buffer.in.memory.threshold": _WINDOW_ROWS,
}


@dataclass(frozen=True)
class VersionTable:
    """A table of a version: the columns that all its files keep, and its files, which were checked."""

    form: Table
    files: tuple[Key, ...]
    rows: int


def tables_of_version(
    work: BatchWork, data_files: Sequence[DataFile], names: Sequence[str]
) -> dict[str, VersionTable]:
    """Finds the tables that a query reads.

    Raises DataMissing if the version lacks one, RunFailed if a file does not have its registered rows.
    """
    return {name: _table(work, name, [file for file in data_files if file.table == name]) for name in names}


def _table(work: BatchWork, name: str, data_files: list[DataFile]) -> VersionTable:
    if not data_files:
        raise DataMissing(f"this version has no {name}; send them, and ask the version that this makes")
    kept = set.intersection(*(set(file.columns) for file in data_files))
    chunks = [chunk for file in data_files for chunk in work.registry.file_chunks(file.file)]
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="sql-files") as threads:
        files = tuple(threads.map(lambda chunk: _sound(work, chunk), chunks))
    return VersionTable(LAYOUT[name].normal_form(kept), files, sum(chunk.rows for chunk in chunks))


def _sound(work: BatchWork, chunk: ChunkRecord) -> Key:
    key = chunk_key(work.storage, "", chunk)
    flaw = inspect(work.storage, key, chunk.rows, landed=None).flaw
    if flaw is not None:
        raise RunFailed(f"a file of {chunk.table} {flaw}")
    return key


def session_with(work: BatchWork, tables: Mapping[str, VersionTable]) -> SparkSession:
    """Opens a session with these tables as views. Other sessions do not see them."""
    session = work.spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    for name, table in tables.items():
        files = [work.storage.url(key) for key in table.files]
        rows = read_table(session, work.storage.url(KEYS.landing), table.form, files)
        rows.select(*map(_shown, table.form.columns)).createOrReplaceTempView(name)
    return session


def _shown(column: TableColumn) -> Column:
    value = f.col(column.name)
    if column.kind is Kind.MONEY:
        value = (value.cast("decimal(19,0)") * f.expr("0.0001BD")).cast("decimal(19,4)")
    return value.alias(column.name)


def require_small_broadcasts(work: BatchWork, frame: DataFrame, tables: Mapping[str, VersionTable]) -> None:
    """Raises QuestionError if Spark would have to hold a large part of the query in memory: one side of a
    join without equal columns, or the rows of a subquery that stands for one value."""
    execution = frame._jdf.queryExecution()
    subqueries = execution.optimizedPlan().subqueriesAll()
    for plan in map(subqueries.apply, range(subqueries.size())):
        most = plan.maxRows()
        is_bounded = most.isDefined() and most.get() <= BROADCAST_ROWS
        if not is_bounded and not _is_small(work, plan, tables):
            raise QuestionError("a subquery in place of a value: compute one row, as with max(…) or LIMIT 1")
    plan = execution.executedPlan()
    plan = plan.initialPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan
    broadcasts = _nodes(plan, "BroadcastExchange")
    if not all(_is_small(work, broadcast, tables) for broadcast in broadcasts):
        raise QuestionError(
            "an outer join without = and NOT IN hold one side in memory, and this one is too large: "
            "join by = or use NOT EXISTS"
        )
    if prod(_rows(_tables_below(broadcast, tables)) for broadcast in broadcasts) > _MOST_LOOPS:
        raise QuestionError("outer joins without = combine too many rows with each other: join by =")


def _nodes(plan: Any, name: str) -> list[Any]:
    """The nodes of this kind in a physical plan."""
    children = plan.children()
    below = [node for at in range(children.size()) for node in _nodes(children.apply(at), name)]
    return [plan, *below] if plan.nodeName() == name else below


def _is_small(work: BatchWork, plan: Any, tables: Mapping[str, VersionTable]) -> bool:
    """Whether the rows of the tables below, each combined with each, may be held in memory."""
    read = _tables_below(plan, tables)
    if _rows(read) > BROADCAST_ROWS:
        return False
    return _rows(read) * sum(_longest_row(work, table) for table in read) <= BROADCAST_BYTES


def _rows(read: Sequence[VersionTable]) -> int:
    """The rows of these tables, each combined with each."""
    return prod(table.rows for table in read)


def _tables_below(plan: Any, tables: Mapping[str, VersionTable]) -> list[VersionTable]:
    leaves = plan.collectLeaves()
    names = (_table_of(leaves.apply(at), tables) for at in range(leaves.size()))
    return [tables[name] for name in names if name is not None]


def _longest_row(work: BatchWork, table: VersionTable) -> int:
    """Upper bound of the bytes of one row."""
    size = table_size(work.storage, table.form, table.files, table.rows)
    return NUMBER_BYTES * len(table.form.columns) + sum(size.longest.values())


def _table_of(leaf: Any, tables: Mapping[str, VersionTable]) -> str | None:
    """The table that a leaf of a plan reads; None if it reads no files."""
    if not leaf.nodeName().startswith(("Scan parquet", "LogicalRelation")):
        return None
    path = unquote(leaf.relation().location().rootPaths().head().toString())
    return next(name for name in tables if f"/table={name}/" in path)
