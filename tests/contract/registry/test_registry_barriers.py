"""Barriers: snapshots of the runs in front of them, and an opening that happens once."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import event, update

from catalog_tables import TABLES
from kopitiam.contracts.batches import Batch, Processed, StageRows
from kopitiam.contracts.errors import BarrierNotReady, IllegalTransition, RunOver
from kopitiam.contracts.progress import RowFlow, Snapshot, Volume
from kopitiam.contracts.runs import RunState
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry import Registry
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.schema import runs

NOTHING = {0: Volume(), 1: Volume()}


@pytest.fixture
def sealed(registry, open_run, put) -> Callable[[int], str]:
    def sealed_run(chunks: int = 0) -> str:
        """All chunks are of table users, in two shards."""
        run = open_run(shards=2)
        for number in range(chunks):
            put(run, number)
        for table in TABLES:
            registry.end_table(run, table, *((chunks, 10 * chunks) if table == "users" else (0, 0)))
        return run

    return sealed_run


def expected(users: dict[int, Volume]) -> dict[str, dict[int, Volume]]:
    return dict.fromkeys(TABLES, NOTHING) | {"users": users}


def test_a_snapshot_has_expected_processed_and_pending_chunks(registry, sealed) -> None:
    run = sealed(5)
    registry.commit_batch(Batch("q", 0, {0: (0, 2)}, (Processed(run, "users", 0, 2, 20),)))
    assert registry.snapshots() == [
        Snapshot(
            run,
            RunState.SEALED,
            QuestionSet.of_catalog().stages.of_table,
            expected({0: Volume(3, 30), 1: Volume(2, 20)}),
            {"users": {0: Volume(2, 20)}},
            pending=3,
        )
    ]
    registry.commit_batch(Batch("q", 1, {0: (2, 3), 1: (0, 2)}, (Processed(run, "users", 1, 2, 20),)))
    (view,) = registry.snapshots()
    assert view.processed == {"users": {0: Volume(2, 20), 1: Volume(2, 20)}}
    assert view.pending == 0


def test_snapshots_are_of_sealed_and_final_runs_oldest_first(registry, open_run, sealed, clock) -> None:
    runs = []
    for _ in range(4):
        runs.append(sealed(1))
        clock.advance(1)
    open_run()
    registry.move(runs[0], RunState.FINAL)
    registry.move(runs[2], RunState.FINAL)
    registry.force_end(runs[3], "enough")
    views = registry.snapshots()
    assert [view.run for view in views] == runs[:3]
    assert [view.state for view in views] == [RunState.FINAL, RunState.SEALED, RunState.FINAL]
    assert [view.pending for view in views] == [1, 1, 1]


def test_each_snapshot_has_the_figures_of_its_own_run(registry, sealed) -> None:
    one, other, empty = sealed(2), sealed(4), sealed(0)
    registry.commit_batch(Batch("q", 0, {0: (0, 1)}, (Processed(one, "users", 0, 1, 10),)))
    views = {view.run: view for view in registry.snapshots()}
    assert views[one].expected == expected({0: Volume(1, 10), 1: Volume(1, 10)})
    assert views[other].expected == expected({0: Volume(2, 20), 1: Volume(2, 20)})
    assert views[empty].expected == expected(NOTHING)
    assert [views[run].processed for run in (one, other, empty)] == [{"users": {0: Volume(1, 10)}}, {}, {}]
    assert [views[run].pending for run in (one, other, empty)] == [1, 4, 0]


def test_snapshots_of_many_runs_take_few_queries(place, sealed) -> None:
    for _ in range(5):
        sealed(2)
    queries = []
    engine = connect_engine(place.url, place.home)
    event.listen(engine, "before_cursor_execute", lambda *args: queries.append(args[2].split()[0]))
    assert len(Registry(engine).snapshots()) == 5
    assert queries.count("SELECT") == 4
    engine.dispose()


def test_a_barrier_opens_once(registry, sealed) -> None:
    run, start = sealed(), Barrier(6)

    def opening(_: int) -> bool:
        start.wait()
        return registry.open_barrier(run)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(opening, range(6))) == 1
    assert registry.get_run(run).state is RunState.FINAL
    registry.publish_results(run, "a1", {})
    assert not registry.open_barrier(run)


def test_the_barrier_of_an_open_run_stays_closed(registry, open_run) -> None:
    run = open_run()
    with pytest.raises(IllegalTransition):
        registry.open_barrier(run)
    assert registry.get_run(run).state is RunState.OPEN


@pytest.mark.parametrize("to", [RunState.FAILED, RunState.ENDED])
def test_a_run_that_failed_or_was_ended_has_no_barrier(registry, sealed, to) -> None:
    run = sealed()
    registry.move(run, to)
    with pytest.raises(RunOver):
        registry.open_barrier(run)


def process(registry: Registry, run: str, shard: int, *, chunks: int, rows: int) -> None:
    """The first chunks of a shard, in the only batch that it has."""
    processed = (Processed(run, "users", shard, chunks, rows),)
    registry.commit_batch(Batch("q", shard, {shard: (0, chunks)}, processed))


def test_a_barrier_stays_closed_while_chunks_are_pending(registry, sealed) -> None:
    run = sealed(5)
    with pytest.raises(
        BarrierNotReady, match=r"expected 5 chunks with 50 rows, processed 0 .* 5 chunks pending"
    ):
        registry.open_barrier(run)
    process(registry, run, 0, chunks=3, rows=30)
    with pytest.raises(BarrierNotReady, match="processed 3 chunks with 30 rows, 2 chunks pending"):
        registry.open_barrier(run)
    assert registry.get_run(run).state is RunState.SEALED
    process(registry, run, 1, chunks=2, rows=20)
    assert registry.open_barrier(run)


@pytest.mark.parametrize("rows", [19, 21])
def test_a_barrier_stays_closed_when_the_rows_differ(registry, sealed, rows: int) -> None:
    run = sealed(2)
    process(registry, run, 0, chunks=1, rows=10)
    process(registry, run, 1, chunks=1, rows=rows - 10)
    with pytest.raises(
        BarrierNotReady, match=f"expected 2 chunks with 20 rows, processed 2 chunks with {rows}"
    ):
        registry.open_barrier(run)
    assert registry.fail_if_contradictory(run) is not None
    failed = registry.get_run(run)
    assert failed.state is RunState.FAILED
    assert (
        failed.error
        == f"table users, shard 1: expected 1 chunk with 10 rows, processed 1 chunk with {rows - 10} rows"
    )


def test_a_run_without_contradictory_figures_does_not_fail(registry, open_run, sealed) -> None:
    for run in (open_run(), sealed(0), sealed(3)):
        before = registry.get_run(run)
        assert registry.fail_if_contradictory(run) is None
        assert registry.get_run(run) == before


def test_a_chunk_that_no_batch_will_process_fails_the_run(registry, sealed) -> None:
    run = sealed(2)
    registry.commit_batch(Batch("q", 0, {0: (0, 1), 1: (0, 1)}, (Processed(run, "users", 0, 1, 10),)))
    assert registry.fail_if_contradictory(run) == (
        "table users, shard 1: expected 1 chunk with 10 rows, processed 0 chunks with 0 rows,"
        " and none is pending"
    )


@pytest.mark.parametrize("to", [RunState.FINAL, RunState.ENDED])
def test_a_run_past_its_barrier_is_not_failed_any_more(registry, sealed, to: RunState) -> None:
    run = sealed(2)
    registry.move(run, to)
    assert registry.fail_if_contradictory(run) is None
    assert registry.get_run(run).state is to


def test_a_barrier_opens_only_when_the_last_batch_is_committed_however_early_it_is_asked_for(
    registry, sealed
) -> None:
    run, start = sealed(2), Barrier(2)
    process(registry, run, 0, chunks=1, rows=10)

    def commit_last() -> None:
        start.wait()
        process(registry, run, 1, chunks=1, rows=10)

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit_last)
        start.wait()
        while True:
            try:
                assert registry.open_barrier(run)
                break
            except BarrierNotReady:
                continue
        committing.result()
    assert registry.snapshot(run).processed == {"users": {0: Volume(1, 10), 1: Volume(1, 10)}}


def test_a_run_needs_the_tables_of_its_questions_and_no_others(registry) -> None:
    definition = {
        "name": "by_hour",
        "title": "Purchases by hour",
        "from": "transactions",
        "by": {"hour": "hour(created_at)"},
        "measure": {"purchases": "count(*)"},
        "columns": ["hour", "purchases"],
    }
    questions = {"definitions": [definition], "ask": ["by_hour"]}
    run = registry.open_run(questions, "", "anna", idempotency_key=None, lease_seconds=60, shards=1).run.run
    assert list(registry.table_states(run)) == ["transactions"]
    assert registry.end_table(run, "transactions", 0, 0).sealed
    assert registry.get_run(run).state is RunState.SEALED
    assert registry.snapshot(run).stages == {"transactions": ("agg_by_hour",)}
    assert registry.open_barrier(run)


def test_rows_of_stages_add_up_and_a_repeated_batch_changes_nothing(registry, sealed) -> None:
    run, other = sealed(2), sealed(0)
    first = Batch("q", 0, {0: (0, 1)}, (), (), (StageRows(run, "filter_year", 0, 10, 7),))
    second = Batch(
        "q",
        1,
        {1: (0, 1)},
        (),
        (),
        (StageRows(run, "filter_year", 1, 10, 2), StageRows(run, "agg_tpv", 1, 2, 1)),
    )
    for batch in (first, first, second, second):
        registry.commit_batch(batch)
    assert registry.run_account(run).flows == {
        "agg_tpv": {1: RowFlow(2, 1)},
        "filter_year": {0: RowFlow(10, 7), 1: RowFlow(10, 2)},
    }
    assert registry.run_account(other).flows == {}


def test_a_run_of_another_version_fails_and_holds_up_no_other(registry, place, sealed) -> None:
    other, unreadable = sealed(), sealed()
    engine = connect_engine(place.url, place.home)
    with engine.begin() as connection:
        kept = json.dumps({**QuestionSet.of_catalog().to_dict(), "ask": ["of_tomorrow"]})
        connection.execute(update(runs).where(runs.c.run == unreadable).values(questions=kept))
    engine.dispose()
    flaws = {view.run: view.flaw for view in registry.snapshots()}
    assert flaws[other] == ""
    assert "this version cannot read the questions" in flaws[unreadable]
    assert registry.fail_if_contradictory(unreadable) == flaws[unreadable]
    assert registry.get_run(unreadable).state is RunState.FAILED
    assert registry.open_barrier(other)
