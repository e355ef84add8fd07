"""Where the chunk files of a run lie."""

from pathlib import Path


def table_folder(landing: Path, table: str) -> Path:
    return landing / f"table={table}"


def chunk_path(landing: Path, table: str, shard: int, run: str, number: int) -> Path:
    return table_folder(landing, table) / f"shard={shard}" / f"run={run}" / f"chunk-{number:05d}.parquet"
