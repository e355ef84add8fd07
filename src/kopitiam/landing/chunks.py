"""The file of a chunk: its name, and whether it still has the bytes that were registered."""

import hashlib
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.runs import ChunkRecord, LogEntry
from kopitiam.landing.layout import KEYS
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


def flaw_of(storage: StoragePort, key: Key, rows: int, landed: str | None) -> str | None:
    """Every byte counts: Parquet's checksums cover pages only, where the writer made them at all, and a
    footer that is damaged may hide rows. `landed` is None for chunks of earlier versions."""
    try:
        with storage.open(key) as file:
            if landed is not None and digest_of(file) != landed:
                return "is damaged: its file does not have the bytes that were registered"
            file.seek(0)
            found = pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        return f"cannot be read: {str(error).partition(chr(10))[0]}"
    return None if found == rows else f"has {found} rows, {rows} were registered"


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: pa.NativeFile | io.IOBase) -> str:
    sha = hashlib.sha256()
    while piece := file.read(1 << 20):
        sha.update(piece)
    return sha.hexdigest()
