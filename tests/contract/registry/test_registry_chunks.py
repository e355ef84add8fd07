"""Chunks: stored once, never replaced, and read back as a log without gaps."""

import pytest

from catalog_tables import TABLES
from kopitiam.contracts.batches import EXPRESS_CHUNKS, slow_lane
from kopitiam.contracts.errors import RunNotFound, RunOver, TableSealed
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import LogEntry, RunState

PLENTY = 10**9


def seal(registry, run: str) -> None:
    for table, state in registry.table_states(run).items():
        assert registry.end_table(run, table, state.chunks, state.rows).sealed


def test_a_chunk_is_stored_once_and_is_then_the_same(registry, open_run, put) -> None:
    run = open_run()
    first = put(run, 0)
    again = put(run, 0)
    assert (first.outcome, again.outcome) == ("stored", "same")
    assert first.chunk == again.chunk
    assert registry.chunks(run, "users") == [first.chunk]
    assert registry.last_sequence(0) == 1


def test_other_bytes_under_the_same_number_are_a_conflict(registry, open_run, put) -> None:
    run = open_run()
    first = put(run, 0, digest="one")
    other = put(run, 0, digest="other", rows=11)
    assert other.outcome == "conflict"
    assert other.chunk == first.chunk
    assert registry.table_states(run)["users"].rows == 10


def test_the_figures_of_a_table_count_chunks_rows_and_rejected(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0, rows=10, rejected=1)
    put(run, 7, rows=5, rejected=2)
    put(run, 0, rows=10, rejected=1)
    put(run, 0, "stores", rows=3)
    users = registry.table_states(run)["users"]
    assert (users.chunks, users.rows, users.rejected, users.sealed) == (2, 15, 3, False)
    assert registry.run_account(run).figures.rejected == 3


def test_the_number_decides_the_shard_and_the_arrival_the_sequence(registry, open_run, put) -> None:
    run = open_run(shards=3)
    for number in (5, 2, 0, 4, 3, 8):
        put(run, number)
    assert [(c.number, c.shard, c.sequence) for c in registry.chunks(run, "users")] == [
        (0, 0, 1), (2, 2, 2), (3, 0, 2), (4, 1, 1), (5, 2, 1), (8, 2, 3),
    ]  # fmt: skip
    assert [registry.last_sequence(shard) for shard in range(4)] == [2, 1, 3, 0]


def test_the_first_chunks_of_every_table_are_in_the_express_lane_of_their_shard(
    registry, open_run, put
) -> None:
    run = open_run(shards=2)
    for number in (EXPRESS_CHUNKS + 1, EXPRESS_CHUNKS - 1, EXPRESS_CHUNKS):
        put(run, number)
    put(run, 0, "stores")
    assert [(c.shard, c.lane, c.sequence) for c in registry.chunks(run, "users")] == [
        (1, 1, 1), (0, slow_lane(0), 1), (1, slow_lane(1), 1),
    ]  # fmt: skip
    assert [c.lane for c in registry.chunks(run, "stores")] == [0]
    for number in range(EXPRESS_CHUNKS - 1):
        put(run, number)
    assert registry.end_table(run, "users", EXPRESS_CHUNKS + 2, 10 * (EXPRESS_CHUNKS + 2)).sealed
    of_each = EXPRESS_CHUNKS // 2 + 1
    expected = {shard: Volume(of_each, 10 * of_each) for shard in range(2)}
    assert registry.expectations(run) == {"users": expected}


def test_runs_and_tables_share_the_log_of_a_shard(registry, open_run, put) -> None:
    one, other = open_run(), open_run()
    put(one, 0)
    put(other, 0, "stores", rows=2, bytes=20)
    put(one, 1)
    assert registry.read_span(0, 1, 3) == [
        LogEntry(0, 2, other, "stores", 0, 2, 20),
        LogEntry(0, 3, one, "users", 1, 10, 100),
    ]


def test_a_span_has_what_comes_after_its_beginning_up_to_its_end(registry, open_run, put) -> None:
    run = open_run(shards=2)
    for number in range(8):
        put(run, number)
    assert [entry.number for entry in registry.read_span(1, 1, 3)] == [3, 5]
    assert registry.read_span(1, 3, 3) == []
    assert registry.read_span(1, 4, 9) == []


def test_the_head_of_the_log_has_bounds_but_the_first_entry_always_fits(registry, open_run, put) -> None:
    run = open_run()
    for number in range(6):
        put(run, number, bytes=1000 if number == 3 else 100)
    assert registry.log_head(0, 0, 10, PLENTY) == 6
    assert registry.log_head(0, 0, 2, PLENTY) == 2
    assert registry.log_head(0, 0, 10, 300) == 3
    assert registry.log_head(0, 3, 10, 300) == 4
    assert registry.log_head(0, 3, 0, 0) == 4
    assert registry.log_head(0, 4, 2, 200) == 6


def test_a_reader_at_the_end_of_the_log_stays_there(registry, open_run, put) -> None:
    put(open_run(), 0)
    assert registry.log_head(0, 1, 10, PLENTY) == 1
    assert registry.log_head(0, 5, 10, PLENTY) == 5
    assert registry.log_head(1, 0, 10, PLENTY) == 0


def test_the_head_of_the_log_skips_deleted_runs(registry, open_run, put) -> None:
    kept, forgotten = open_run(), open_run()
    for number, run in enumerate((forgotten, kept, forgotten, forgotten)):
        put(run, number)
    registry.force_end(forgotten, "enough")
    registry.delete_run(forgotten)
    assert registry.log_head(0, 0, 10, PLENTY) == 4
    assert registry.log_head(0, 2, 10, PLENTY) == 4
    put(kept, 4)
    assert registry.log_head(0, 0, 1, PLENTY) == 2  # the bound cuts behind an entry, not into a hole
    assert registry.log_head(0, 2, 1, PLENTY) == 5


def test_a_sealed_table_takes_no_new_chunk_but_knows_its_own(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    registry.end_table(run, "users", 1, 10)
    assert put(run, 0).outcome == "same"
    assert put(run, 0, digest="other").outcome == "conflict"
    with pytest.raises(TableSealed):
        put(run, 1)
    assert put(run, 1, "stores").outcome == "stored"


def test_a_sealed_run_takes_no_new_chunk_but_knows_its_own(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    seal(registry, run)
    assert put(run, 0).outcome == "same"
    with pytest.raises(RunOver):
        put(run, 1)


@pytest.mark.parametrize("to", [RunState.FAILED, RunState.ENDED])
def test_a_run_that_is_over_accepts_no_chunk(registry, open_run, put, to: RunState) -> None:
    run = open_run()
    put(run, 0)
    registry.move(run, to)
    for number in (0, 1):
        with pytest.raises(RunOver):
            put(run, number)
    with pytest.raises(RunOver):
        registry.end_table(run, "users", 1, 10)
    assert registry.last_sequence(0) == 1


def test_a_chunk_of_an_unknown_run_is_refused(registry, put) -> None:
    with pytest.raises(RunNotFound):
        put("0" * 24, 0)
    assert registry.last_sequence(0) == 0


@pytest.mark.parametrize("flaw", [{"number": -1}, {"table": "users; --"}, {"rows": -1}, {"bytes": 2**63}])
def test_an_invalid_chunk_is_refused_before_the_database(open_run, put, flaw) -> None:
    with pytest.raises(ValueError, match=r"expected|no table"):
        put(open_run(), **({"number": 0} | flaw))


def test_large_counts_are_kept_exactly(registry, open_run, put) -> None:
    run = open_run(shards=7)
    put(run, 2**40, rows=2**41, bytes=2**42)
    put(run, 2**40 + 7, rows=2**41)
    chunk = registry.chunks(run, "users")[0]
    assert (chunk.number, chunk.rows, chunk.bytes, chunk.shard) == (2**40, 2**41, 2**42, 2**40 % 7)
    assert registry.table_states(run)["users"].rows == 2**42


def test_every_table_has_its_own_numbers(registry, open_run, put) -> None:
    run = open_run()
    assert {put(run, 0, table).outcome for table in TABLES} == {"stored"}
