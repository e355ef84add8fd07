"""How far the stages of a run are: chunks and rows by table and shard, rows in and out by stage. No I/O.

A chunk passes all stages of its table in one batch. Which stages there are follows from what a run asks
(`questions.plans`).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Volume:
    """Chunk and row counts."""

    chunks: int = 0
    rows: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(self.chunks + other.chunks, self.rows + other.rows)


@dataclass(frozen=True)
class RowFlow:
    """Rows that came into a stage, and rows that went on from it."""

    rows_in: int = 0
    rows_out: int = 0

    def __add__(self, other: "RowFlow") -> "RowFlow":
        return RowFlow(self.rows_in + other.rows_in, self.rows_out + other.rows_out)


ByTable = Mapping[str, Mapping[int, Volume]]  # table → shard → volume
FlowByStage = Mapping[str, Mapping[int, RowFlow]]  # stage → shard → rows


def total_by_shard(volumes: ByTable, tables: tuple[str, ...]) -> dict[int, Volume]:
    """The volumes of several tables together, by shard."""
    shards = sorted({shard for table in tables for shard in volumes.get(table, {})})
    return {
        shard: sum((volumes.get(table, {}).get(shard, Volume()) for table in tables), Volume())
        for shard in shards
    }
