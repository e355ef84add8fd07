"""The stages of the pipeline: which table feeds which stage, and how far a stage is. No I/O.

A chunk passes all stages of its table in one batch. Behind the barrier a stage works once for a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STAGES_OF_TABLE: dict[str, tuple[str, ...]] = {
    "transactions": ("filter_year", "filter_hour", "filter_amount", "agg_tpv", "agg_purchases"),
    "transaction_items": ("filter_year", "agg_products"),
    "stores": ("join_stores_tpv", "join_stores_top"),
    "menu_items": ("join_items",),
    "users": ("join_users",),
}
BEFORE_BARRIER: tuple[str, ...] = tuple(dict.fromkeys(s for fed in STAGES_OF_TABLE.values() for s in fed))
BEHIND_BARRIER: tuple[str, ...] = ("max_products", "sum_tpv", "top_customers", "server_results")
TABLES_OF_STAGE: dict[str, tuple[str, ...]] = {
    stage: tuple(table for table, fed in STAGES_OF_TABLE.items() if stage in fed) for stage in BEFORE_BARRIER
}


@dataclass(frozen=True)
class Volume:
    """So many chunks with so many rows in all."""

    chunks: int = 0
    rows: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(self.chunks + other.chunks, self.rows + other.rows)


ByTable = Mapping[str, Mapping[int, Volume]]  # table → shard → volume
ByStage = dict[str, dict[int, Volume]]  # stage → shard → volume


def expected_by_stage(expected: ByTable) -> ByStage:
    """What each shard of a stage has to process; a stage is left out until all its tables have had END."""
    return {
        stage: _sum([expected[table] for table in tables])
        for stage, tables in TABLES_OF_STAGE.items()
        if all(table in expected for table in tables)
    }


def processed_by_stage(processed: ByTable) -> ByStage:
    return {
        stage: _sum([processed.get(table, {}) for table in tables])
        for stage, tables in TABLES_OF_STAGE.items()
    }


def _sum(volumes: list[Mapping[int, Volume]]) -> dict[int, Volume]:
    shards = sorted({shard for by_shard in volumes for shard in by_shard})
    return {shard: sum((by_shard.get(shard, Volume()) for by_shard in volumes), Volume()) for shard in shards}
