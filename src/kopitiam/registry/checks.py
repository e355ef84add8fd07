"""What never reaches the database: values that make no sense, whoever passes them."""

from kopitiam.contracts.batches import Batch
from kopitiam.questions.layout import LAYOUT

LARGEST = 2**63 - 1  # what the database can count


def want_table(table: str) -> None:
    if table not in LAYOUT:
        raise ValueError(f"no table {table!r}")


def want_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not 0 <= count <= LARGEST:
            raise ValueError(f"{name} {count}: want 0 to {LARGEST}")


def want_batch(batch: Batch) -> None:
    want_counts(batch=batch.batch)
    for lane, (after, upto) in batch.spans.items():
        want_counts(lane=lane, after=after, upto=upto)
        if upto < after:
            raise ValueError(f"lane {lane}: want a span that goes forward, not from {after} to {upto}")
    for processed in batch.processed:
        want_table(processed.table)
        want_counts(chunks=processed.chunks, rows=processed.rows)
        if processed.shard not in batch.shards:
            raise ValueError(f"shard {processed.shard}: want a span for what was processed of it")
    for counted in batch.stage_rows:
        want_counts(rows_in=counted.rows_in, rows_out=counted.rows_out)
        if counted.shard not in batch.shards:
            raise ValueError(f"shard {counted.shard}: want a span for what was counted in it")
    for partial in batch.partials:
        want_counts(level=partial.level, rows=partial.rows)
