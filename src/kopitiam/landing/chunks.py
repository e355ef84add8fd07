"""The file of a chunk: its key in storage, its Parquet encoding, and the check of its registered bytes."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, Origin
from kopitiam.contracts.tables import Table
from kopitiam.storage.port import Key, StoragePort, own_name


def chunk_key(storage: StoragePort, run: str, chunk: ChunkRecord) -> Key:
    """Key of a chunk's file."""
    place = origin_of(run, chunk)
    key = KEYS.chunk(place.file, chunk.table, place.shard, place.number)
    return named(storage, key, chunk.digest, chunk.is_beside)


def rejected_key(storage: StoragePort, run: str, chunk: ChunkRecord) -> Key:
    """Key of the file with the rejected rows of a chunk."""
    place = origin_of(run, chunk)
    return named(storage, bad_rows(place.file, chunk.table, place.number), chunk.digest, chunk.is_beside)


def origin_of(run: str, chunk: ChunkRecord) -> Origin:
    """Where the chunk lies: below its data file, or below its run."""
    return chunk.origin or Origin(run, chunk.shard, chunk.number)


def bad_rows(run: str, table: str, number: int) -> Key:
    return KEYS.rejected(run) / f"{table}-{number:05d}.csv"


def named(storage: StoragePort, key: Key, digest: str, is_beside: bool) -> Key:
    """Key under which this content is stored; `is_beside`: an orphan has the plain name."""
    return own_name(key, digest) if is_beside else storage.name_of(key, digest)


@dataclass(frozen=True)
class Inspection:
    """The flaw that makes a chunk's file unusable, if any, and the bounds of its columns of whole numbers, as
    far as the file has statistics of them."""

    flaw: str | None = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def inspect(storage: StoragePort, key: Key, rows: int, landed: str | None) -> Inspection:
    """Compare a chunk's file with its registered rows and digest, and return its flaw or its bounds.

    The digest covers every byte: Parquet's optional checksums cover pages only, and a damaged footer may hide
    rows. `landed` is None for chunks of earlier versions.
    """
    try:
        with storage.open(key) as file:
            if landed is not None and digest_of(file) != landed:
                return Inspection("is damaged: its file does not have the bytes that were registered")
            file.seek(0)
            metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        return Inspection(f"cannot be read: {str(error).partition(chr(10))[0]}")
    if metadata.num_rows != rows:
        return Inspection(f"has {metadata.num_rows} rows, {rows} were registered")
    return Inspection(bounds=bounds_of(metadata))


def bounds_of(metadata: pq.FileMetaData) -> dict[str, tuple[int, int]]:
    """The least and greatest value of each column of 64-bit integers that has statistics."""
    bounds: dict[str, tuple[int, int]] = {}
    unknown = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if column.physical_type != "INT64":
                continue
            if statistics is not None and statistics.has_min_max:
                least, greatest = bounds.get(name, (statistics.min_raw, statistics.max_raw))
                bounds[name] = min(least, statistics.min_raw), max(greatest, statistics.max_raw)
            elif statistics is None or statistics.null_count != group.num_rows:
                unknown.add(name)
    return {name: pair for name, pair in bounds.items() if name not in unknown}


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: pa.NativeFile | io.IOBase) -> str:
    sha = hashlib.sha256()
    while piece := file.read(1 << 20):
        sha.update(piece)
    return sha.hexdigest()


# Not LZ4: when it filters by dictionary, the Parquet library of Spark 4.3 cannot read a dictionary page of
# LZ4_RAW that is larger than 8 KiB. docs/decisions/0013-parquet-codecs.md has the figures.
_CODEC = "zstd"
_LEVEL = 1
# A larger dictionary costs more time and bytes than the plain values do.
_MAX_DICTIONARY_BYTES = 64 << 10


def encode(table: Table, rows: pa.Table) -> bytes:
    """Encode rows as one Parquet row group, with the statistics by which Spark skips it.

    Texts that are UUIDs are stored as two numbers, if the rows have them so. The same rows give the same
    bytes, so that an upload can be resumed.
    """
    sink = pa.BufferOutputStream()
    stored = in_stored_form(table, rows).combine_chunks()  # pages and dictionaries would depend on the pieces
    random = {half for column in table.columns if column.is_uuid for half in column.halves}
    compressed = [name for name in stored.schema.names if name not in random]
    pq.write_table(
        stored,
        sink,
        row_group_size=max(rows.num_rows, 1),
        compression={name: _CODEC if name in compressed else "none" for name in stored.schema.names},
        compression_level=dict.fromkeys(compressed, _LEVEL),
        use_dictionary=[column.name for column in table.columns if column.repeats],
        dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
        store_schema=False,
        write_page_checksum=True,  # without it, most flipped bits would be read as other values
    )
    return bytes(sink.getvalue())


def in_stored_form(table: Table, rows: pa.Table) -> pa.Table:
    """The rows without the form of UUIDs, text or numbers, that none of them has."""
    names = set(rows.schema.names)
    for column in table.columns:
        if column.is_uuid and names.issuperset(column.halves):
            if rows[column.halves[0]].null_count == rows.num_rows:
                names.difference_update(column.halves)
            elif rows[column.name].null_count == rows.num_rows:
                names.remove(column.name)
    schema = table.stored_as(names).schema
    return pa.Table.from_arrays([rows[name] for name in schema.names], schema=schema)
