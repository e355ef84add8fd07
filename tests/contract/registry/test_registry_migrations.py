"""Migration of a registry of an earlier version, with all its rows."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from data_world import NAMES, DataWorld, month
from sqlalchemy import Engine, MetaData

from catalog_tables import TABLES
from kopitiam.contracts.batches import Batch, Partial, Processed
from kopitiam.contracts.errors import BarrierNotReady
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import LogEntry, Run, RunState, TableState
from kopitiam.registry import Fence, Published, Registry
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.migrations import upgrade

RUNS = {state: f"{state.value:0<24}" for state in RunState}


@pytest.fixture
def engine(place) -> Iterator[Engine]:
    engine = connect_engine(place.url, place.home)
    yield engine
    engine.dispose()


def row_of(state: RunState) -> dict[str, Any]:
    return {
        "run": RUNS[state], "label": "May", "state": state.value, "questions": json.dumps({"top": 3}),
        "owner": "anna", "idempotency_key": state.value, "shards": 1, "created_at": 1000.5,
        "lease_seconds": 60.0, "lease_expires_at": 1060.5, "finished_at": 1100.5 if state.is_over else None,
        "error": "3 rows too many" if state is RunState.FAILED else None, "version": 5,
        "claimed_by": "pipeline-1" if state in (RunState.FINAL, RunState.DONE) else None,
    }  # fmt: skip


def fill_0001(engine: Engine) -> None:
    """A run in every state, each with one chunk of users; written as that version did."""
    upgrade(engine, "0001")
    tables = MetaData()
    tables.reflect(engine)
    sealed = [state for state in RunState if state not in (RunState.OPEN, RunState.FAILED, RunState.ENDED)]
    of_runs: dict[str, list[dict[str, Any]]] = {
        "runs": [row_of(state) for state in RunState],
        "run_tables": [
            {
                "run": RUNS[state], "table_name": table, "rejected": 0, "sealed": state in sealed,
                **dict.fromkeys(("chunks", "expected_chunks"), int(table == "users")),
                **dict.fromkeys(("rows", "expected_rows"), 10 * (table == "users")),
            }
            for state in RunState for table in TABLES
        ],
        "chunks": [
            {
                "run": RUNS[state], "table_name": "users", "number": 0, "digest": "d", "rows": 10,
                "bytes": 100, "rejected": 0, "shard": 0, "sequence": sequence,
            }
            for sequence, state in enumerate(RunState, start=1)
        ],
        "shard_expectations": [
            {"run": RUNS[state], "table_name": "users", "shard": 0, "chunks": 1, "rows": 10}
            for state in sealed
        ],
        "shard_counters": [{"shard": 0, "last": len(RunState)}],
        "results": [
            {"run": RUNS[RunState.DONE], "attempt": "a1", "figures": '{"n": 1}', "published_at": 1100.5}
        ],
        "leases": [{"name": "leader", "holder": "one", "epoch": 4, "expires_at": 10.0**10}],
    }  # fmt: skip
    with engine.begin() as connection:
        for name, rows in of_runs.items():
            connection.execute(tables.tables[name].insert(), rows)


@pytest.fixture
def upgraded(engine) -> Registry:
    fill_0001(engine)
    upgrade(engine)
    return Registry(engine)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.FINAL])
def test_runs_are_as_they_were(upgraded, state: RunState) -> None:
    kept = row_of(state)
    figures = upgraded.run_account(RUNS[state]).figures
    assert figures.run == Run(
        RUNS[state], "May", state, {"top": 3}, "anna", 1, 1000.5, 1060.5, kept["finished_at"], kept["error"]
    )
    is_sealed = state in (RunState.SEALED, RunState.DONE)
    assert figures.tables["users"] == TableState(1, 10, 0, 1, 10, is_sealed)
    assert figures.version == 5


def test_log_answers_and_leases_are_as_they_were(upgraded) -> None:
    log = upgraded.read_span(0, 0, upgraded.log_head(0, 0, 100, 10**9))
    assert log == [LogEntry(0, at, RUNS[state], "users", 0, 10, 100) for at, state in enumerate(RunState, 1)]
    assert upgraded.results(RUNS[RunState.DONE]) == Published("a1", {"n": 1}, 1100.5)
    assert upgraded.expectations(RUNS[RunState.SEALED]) == {"users": {0: Volume(1, 10)}}
    assert upgraded.holds(Fence("leader", 4, "one"))
    assert upgraded.take_over("leader", "other", 10) == 5


def test_a_run_that_was_being_answered_waits_for_its_barrier(upgraded) -> None:
    """In that version, final meant that a worker had claimed the run: nothing is processed yet."""
    run = RUNS[RunState.FINAL]
    assert upgraded.get_run(run).state is RunState.SEALED
    assert upgraded.version(run) == 6
    (view,) = [view for view in upgraded.snapshots() if view.run == run]
    assert (view.expected, view.processed, view.pending) == ({"users": {0: Volume(1, 10)}}, {}, 1)


def test_the_stream_begins_at_the_beginning_of_the_log(upgraded) -> None:
    assert upgraded.positions([0]) == {0: 0}
    processed = tuple(Processed(run, "users", 0, 1, 10) for run in RUNS.values())
    partials = tuple(Partial(run, f"p/{run}") for run in RUNS.values())
    committed = upgraded.commit_batch(Batch("q", 0, {0: (0, len(RUNS))}, processed, partials))
    assert committed.ignored == {RUNS[state] for state in RunState if state.is_over}
    run = RUNS[RunState.FINAL]
    with pytest.raises(BarrierNotReady, match="without END: menu_items"):
        upgraded.open_barrier(run)
    upgraded.move(run, RunState.FINAL)
    claimant = Fence("pipeline-1", upgraded.take_over("pipeline-1", "life", 60), "life")
    assert upgraded.claim_final(run, claimant)
    assert upgraded.delete_run(RUNS[RunState.DONE])


def test_a_registry_that_is_up_to_date_stays_as_it_is(upgraded, engine) -> None:
    upgraded.move(RUNS[RunState.SEALED], RunState.FINAL)
    upgrade(engine)
    assert upgraded.get_run(RUNS[RunState.SEALED]).state is RunState.FINAL


def test_data_sets_work_beside_runs_of_an_earlier_version(upgraded) -> None:
    world = DataWorld(upgraded)
    (chunk,) = upgraded.chunks(RUNS[RunState.OPEN], "users")
    assert (chunk.origin, upgraded.get_run(RUNS[RunState.OPEN]).data) == (None, None)
    world.answered(NAMES | month(1))
    assert upgraded.progress(RUNS[RunState.SEALED]) == {"users": {0: Volume(1, 10)}}
    again = world.submit(month(2))
    world.process()
    assert world.is_complete(again) and world.reused(again) == set(month(1))
