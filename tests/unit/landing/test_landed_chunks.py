"""Inspection of a landed chunk detects a flipped bit in every part of the file."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_tables import TABLES
from kopitiam.landing.chunks import encode, inspect
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key

KEY, ROWS = Key("chunk-00000.parquet"), 5000


def stores() -> pa.Table:
    schema = TABLES["stores"].schema
    columns = [pa.array([n % 97 for n in range(ROWS)], pa.int64()).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def ours(rows: pa.Table) -> bytes:
    return encode(TABLES["stores"], rows)


def without_checksums(rows: pa.Table) -> bytes:
    """As any client may send it."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, write_page_checksum=False, compression="none")
    return bytes(sink.getvalue())


def places(content: bytes) -> dict[str, int]:
    """Where a byte of each kind is."""
    column = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(0)
    found = {
        "magic": 1,
        "page header": (column.dictionary_page_offset or column.data_page_offset) + 1,
        "data page header": column.data_page_offset + 1,
        "data page": column.data_page_offset + 40,
        "footer": len(content) - 40,
        "length of the footer": len(content) - 8,
        "last magic": len(content) - 1,
    }
    if column.dictionary_page_offset:
        found["dictionary page"] = column.dictionary_page_offset + 30
    return found


@pytest.mark.parametrize("made", [ours, without_checksums])
def test_a_flipped_bit_in_any_part_of_the_file_is_detected(tmp_path: Path, made) -> None:
    content = made(stores())
    landed, storage = hashlib.sha256(content).hexdigest(), LocalStorage(tmp_path)
    storage.replace(KEY, content)
    assert inspect(storage, KEY, ROWS, landed).flaw is None
    for kind, place in places(content).items():
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        storage.replace(KEY, bytes(damaged))
        assert "damaged" in (inspect(storage, KEY, ROWS, landed).flaw or ""), kind


def test_rows_are_counted_where_an_earlier_version_registered_no_digest(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.replace(KEY, ours(stores()))
    assert inspect(storage, KEY, ROWS, None).flaw is None
    assert inspect(storage, KEY, ROWS + 1, None).flaw == f"has {ROWS} rows, {ROWS + 1} were registered"
