"""Chunk files: Parquet that Spark reads natively, on disk for good before anybody is told, never changed."""

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.tables import Table


class AlreadyWritten(Exception):
    """Another content stands under this name: a chunk file is never changed."""


def encode(table: Table, rows: pa.Table) -> bytes:
    """One row group of Parquet, with the statistics by which Spark skips it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=max(rows.num_rows, 1),
        compression="lz4",
        use_dictionary=[column.name for column in table.columns if column.repeats],
        store_schema=False,
    )
    return bytes(sink.getvalue())


def write_once(path: Path, data: bytes) -> bool:
    """Durable when it returns. False if these very bytes were there already."""
    _make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename, a link never replaces a file
        except FileExistsError:
            if path.read_bytes() == data:
                return False
            raise AlreadyWritten(str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
