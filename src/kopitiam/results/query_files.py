"""The files of an SQL query in storage, from the request to the outcome, and its result as CSV and JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.sql_queries import (
    BEGUN_FILE,
    OUTCOME_FILE,
    REQUEST_FILE,
    QueryBegun,
    QueryOutcome,
    QueryRecord,
    QueryRequest,
)
from kopitiam.results.answers import rows_per_batch
from kopitiam.results.cells import csv_lines, json_lines
from kopitiam.storage.port import Key, StoragePort

_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class QueryFolder:
    """The folder of one query over a data set."""

    storage: StoragePort
    data_set: str
    query: str

    @property
    def key(self) -> Key:
        return KEYS.query(self.data_set, self.query)

    def read(self) -> QueryRecord | None:
        """Return what is recorded; None if the query was never sent, or is removed."""
        request = self._json(REQUEST_FILE)
        if request is None:
            return None
        begun, outcome = self._json(BEGUN_FILE), self._json(OUTCOME_FILE)
        return QueryRecord(
            self.query,
            QueryRequest(**request),
            QueryBegun(**begun) if begun else None,
            QueryOutcome.from_dict(outcome) if outcome else None,
        )

    @property
    def is_requested(self) -> bool:
        """Whether the query is still to be answered: its client or a drop of the data set may remove it."""
        return bool(self.storage.find(str(self.key / REQUEST_FILE)))

    def write_request(self, request: QueryRequest) -> None:
        self._write(REQUEST_FILE, request.to_dict())

    def write_begun(self, begun: QueryBegun) -> None:
        self._write(BEGUN_FILE, begun.to_dict())

    def write_outcome(self, outcome: QueryOutcome) -> None:
        self._write(OUTCOME_FILE, outcome.to_dict())

    def write_result(self, name: str, result: pa.Table, scratch: Path) -> None:
        with self.storage.new_folder(self.key, scratch) as out:
            pq.write_table(result, out / name, compression="zstd")

    def remove(self) -> None:
        """Remove the query. The request goes first, so that no pipeline begins it."""
        self.storage.remove(self.key / REQUEST_FILE)
        self.storage.remove(self.key)
        self.storage.remove_if_empty(self.key.parent)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        self.storage.replace(self.key / name, json.dumps(content).encode())

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            with self.storage.open(self.key / name) as file:
                content: dict[str, Any] = json.loads(file.read())
        except FileNotFoundError:
            return None
        return content


def write_csv(out: BinaryIO, source: Any) -> None:
    """Write a result in Parquet as CSV with a header."""
    with pq.ParquetFile(source) as file:
        header = csv_lines([pa.array([name]) for name in file.schema_arrow.names])
        out.write(header[0].as_py().encode() + b"\n")
        for batch in _batches(file):
            out.write(b"".join(line.encode() + b"\n" for line in csv_lines(batch.columns).to_pylist()))


def write_json(out: BinaryIO, source: Any, outcome: QueryOutcome) -> None:
    """Write a result in Parquet as JSON, with amounts as exact decimal numbers."""
    columns = [{"name": column.name, "kind": column.kind} for column in outcome.columns]
    head = json.dumps({"columns": columns, "count": outcome.rows, "cut": outcome.is_cut}, ensure_ascii=False)
    out.write(head[:-1].encode() + b', "rows": [')
    separator = b"\n"
    with pq.ParquetFile(source) as file:
        for batch in _batches(file):
            lines = json_lines(batch.schema.names, batch.columns).cast(pa.binary()).to_pylist()
            out.write(separator + b",\n".join(lines))
            separator = b",\n"
    out.write(b"\n]}\n")


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    schema = file.schema_arrow
    rows = min(_BATCH_ROWS, rows_per_batch(schema, schema.names))
    return (batch for batch in file.iter_batches(rows) if len(batch))
