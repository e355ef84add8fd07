"""END: a table is sealed if and only if exactly the chunks and rows in END are durable."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog_tables import TABLES
from kopitiam.contracts.errors import TableSealed
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import RunState
from spans import spans


def test_a_table_with_all_its_chunks_and_rows_is_sealed(registry, open_run, put) -> None:
    run = open_run()
    for number in (1, 0, 2):
        put(run, number)
    ended = registry.end_table(run, "users", 3, 30)
    assert ended.sealed
    users = registry.table_states(run)["users"]
    assert (users.sealed, users.expected_chunks, users.expected_rows) == (True, 3, 30)
    assert registry.get_run(run).state is RunState.OPEN


def test_an_empty_table_is_sealed_too(registry, open_run) -> None:
    run = open_run(shards=2)
    assert registry.end_table(run, "users", 0, 0).sealed
    assert registry.expectations(run) == {"users": {0: Volume(), 1: Volume()}}


def test_tables_that_have_ended_are_told_apart_by_run(registry, open_run, put) -> None:
    first, second = open_run(), open_run()
    put(first, 0)
    registry.end_table(first, "users", 1, 10)
    ended = registry.ended_tables([first, second, "unknown"])
    assert ended == {
        first: {table: table == "users" for table in TABLES},
        second: dict.fromkeys(TABLES, False),
    }
    assert registry.ended_tables([]) == {}


def test_missing_chunks_are_named(registry, open_run, put) -> None:
    run = open_run()
    for number in (0, 3, 4):
        put(run, number)
    ended = registry.end_table(run, "users", 8, 80)
    assert (ended.outcome, ended.missing) == ("missing", ((1, 2), (5, 7)))
    assert (ended.chunks, ended.rows) == (3, 30)
    assert not registry.table_states(run)["users"].sealed
    assert registry.expectations(run) == {}


def test_an_end_with_many_missing_chunks_gets_a_short_answer(registry, open_run, put) -> None:
    run = open_run()
    put(run, 5)
    assert registry.end_table(run, "users", 10**15, 1).missing == ((0, 4), (6, 10**15 - 1))


def test_chunks_beyond_the_end_are_named(registry, open_run, put) -> None:
    run = open_run()
    for number in range(5):
        put(run, number)
    ended = registry.end_table(run, "users", 3, 30)
    assert (ended.outcome, ended.extra, ended.missing) == ("extra", ((3, 4),), ())
    assert not registry.table_states(run)["users"].sealed


def test_another_number_of_rows_is_refused_with_the_figures(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    ended = registry.end_table(run, "users", 1, 11)
    assert (ended.outcome, ended.rows, ended.expected_rows) == ("rows_differ", 10, 11)
    assert registry.end_table(run, "users", 1, 10).sealed


def test_an_end_may_be_repeated_but_not_changed(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    first = registry.end_table(run, "users", 1, 10)
    assert registry.end_table(run, "users", 1, 10) == first
    for chunks, rows in ((2, 10), (1, 11)):
        assert registry.end_table(run, "users", chunks, rows).outcome == "conflict"
    assert registry.table_states(run)["users"].expected_rows == 10


def test_rows_rejected_before_they_came_into_a_chunk_are_counted_once(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0, rejected=2)
    assert not registry.end_table(run, "users", 2, 20, rejected=3).sealed
    for _ in range(2):
        assert registry.end_table(run, "users", 1, 10, rejected=3).sealed
    assert registry.table_states(run)["users"].rejected == 5


def test_the_last_table_seals_the_run(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    *others, last = TABLES
    for table in others:
        registry.end_table(run, table, *((1, 10) if table == "users" else (0, 0)))
    assert registry.get_run(run).state is RunState.OPEN
    registry.end_table(run, last, 0, 0)
    assert registry.get_run(run).state is RunState.SEALED


@pytest.mark.parametrize("state", [RunState.SEALED, RunState.FINAL, RunState.DONE])
def test_an_end_whose_answer_was_lost_may_be_repeated_later(registry, open_run, state: RunState) -> None:
    run = open_run()
    for table in TABLES:
        registry.end_table(run, table, 0, 0)
    for step in (RunState.FINAL, RunState.DONE)[: list(RunState).index(state) - 1]:
        registry.move(run, step)
    assert registry.get_run(run).state is state
    assert registry.end_table(run, "users", 0, 0).sealed
    assert registry.get_run(run).state is state


def test_every_shard_learns_what_to_expect(registry, open_run, put) -> None:
    run = open_run(shards=4)
    for number in range(6):
        put(run, number, rows=2**number)
    registry.end_table(run, "users", 6, 63)
    assert registry.expectations(run) == {
        "users": {0: Volume(2, 17), 1: Volume(2, 34), 2: Volume(1, 4), 3: Volume(1, 8)}
    }


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 7), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 8), st.integers(0, 6)),
        st.just(("end", None, None)),  # with the figures that are right
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, shards=st.integers(1, 4))
def test_end_agrees_with_a_simple_model(registry, open_run, put, steps, shards) -> None:
    run, durable, sealed = open_run(shards=shards), {}, None
    for step, first, second in steps:
        if step == "put":
            is_new = first not in durable
            try:
                outcome = put(run, first, digest=str(second), rows=second).outcome
            except TableSealed:
                assert sealed is not None
                assert is_new
                continue
            assert not (is_new and sealed)
            known = durable.setdefault(first, second)
            assert outcome == ("stored" if is_new else "same" if known == second else "conflict")
        else:
            rows = sum(durable.values())
            chunks, rows_in_end = (first, second) if first is not None else (len(durable), rows)
            ended = registry.end_table(run, "users", chunks, rows_in_end)
            assert (ended.chunks, ended.rows) == (len(durable), rows)
            if sealed:
                assert ended.outcome == ("sealed" if sealed == (chunks, rows_in_end) else "conflict")
                continue
            assert ended.missing == spans(set(range(chunks)) - set(durable))
            assert ended.extra == spans(number for number in durable if number >= chunks)
            is_exact = set(durable) == set(range(chunks)) and rows == rows_in_end
            assert ended.sealed == is_exact
            sealed = (chunks, rows_in_end) if is_exact else None
    if sealed:
        of_shard = registry.expectations(run)["users"]
        assert list(of_shard) == list(range(shards))
        for shard, expected in of_shard.items():
            rows = [r for number, r in durable.items() if number % shards == shard]
            assert expected == Volume(len(rows), sum(rows))
