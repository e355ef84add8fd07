"""Chunk files: Parquet that Spark reads natively, on disk for good before anybody is told, never changed."""

import filecmp
import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.crash_points import crash_point
from kopitiam.contracts.tables import Kind, Table


class AlreadyWritten(Exception):
    """Another content stands under this name: a chunk file is never changed."""


def encode(table: Table, rows: pa.Table) -> bytes:
    """One row group of Parquet, with the statistics by which Spark skips it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=max(rows.num_rows, 1),
        # Random ids do not get smaller, they only take time.
        compression={c.name: "none" if c.kind is Kind.TEXT else "lz4" for c in table.columns},
        use_dictionary=[column.name for column in table.columns if column.repeats],
        store_schema=False,
        write_page_checksum=True,  # or most flipped bits would be read as other values
    )
    return bytes(sink.getvalue())


def replace_file(path: Path, data: bytes) -> None:
    """Durable when it returns, for what may be sent anew; the last one counts."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        _sync(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def keep_once(file: Path, path: Path) -> bool:
    """Gives a written file its name for good: durable when it returns, and the old name stays.

    False if the very same bytes have the name already.
    """
    make_folder(path.parent)
    _sync(file)
    crash_point("chunk.synced")
    try:
        os.link(file, path)  # unlike a rename, a link never replaces a file
    except FileExistsError:
        if not filecmp.cmp(file, path, shallow=False):
            raise AlreadyWritten(str(path)) from None
        sync_folder(path.parent)  # whoever wrote it may have died before this
        return False
    crash_point("chunk.named")
    sync_folder(path.parent)
    return True


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_tree(folder: Path) -> None:
    """Everything below it, and its own name."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        _sync(path)


def sync_folder(folder: Path) -> None:
    """So that the names in it are on disk."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
