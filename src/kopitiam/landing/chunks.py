"""The file of a chunk: its name, and whether it still has the bytes that were registered."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, LogEntry
from kopitiam.storage.port import Key, StoragePort, own_name


def chunk_key(
    storage: StoragePort, run: str, chunk: LogEntry | ChunkRecord, digest: str, is_beside: bool = False
) -> Key:
    return named(storage, KEYS.chunk(run, chunk.table, chunk.shard, chunk.number), digest, is_beside)


def rejected_key(storage: StoragePort, run: str, chunk: ChunkRecord) -> Key:
    return named(storage, bad_rows(run, chunk.table, chunk.number), chunk.digest, chunk.is_beside)


def bad_rows(run: str, table: str, number: int) -> Key:
    return KEYS.rejected(run) / f"{table}-{number:05d}.csv"


def named(storage: StoragePort, key: Key, digest: str, is_beside: bool) -> Key:
    return own_name(key, digest) if is_beside else storage.name_of(key, digest)


@dataclass(frozen=True)
class Inspection:
    """What the file of a chunk shows: why it cannot be used, if so, and the bounds of its columns of whole
    numbers. A column is not in `bounds` if its file does not tell its bounds."""

    flaw: str | None = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def inspect(storage: StoragePort, key: Key, rows: int, landed: str | None) -> Inspection:
    """Every byte counts: Parquet's checksums cover pages only, where the writer made them at all, and a
    footer that is damaged may hide rows. `landed` is None for chunks of earlier versions."""
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
    return Inspection(bounds=_bounds(metadata))


def _bounds(metadata: pq.FileMetaData) -> dict[str, tuple[int, int]]:
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
    return {name: found for name, found in bounds.items() if name not in unknown}


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: pa.NativeFile | io.IOBase) -> str:
    sha = hashlib.sha256()
    while piece := file.read(1 << 20):
        sha.update(piece)
    return sha.hexdigest()
