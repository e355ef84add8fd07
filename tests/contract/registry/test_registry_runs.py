"""Runs: opened once per key, listed, moved along the legal transitions only, forgotten."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from catalog_tables import TABLES
from kopitiam.contracts.errors import (
    IdempotencyConflict,
    IllegalTransition,
    RunNotFound,
    RunOver,
    StaleEpoch,
    TooManyRuns,
)
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import TRANSITIONS, RunState, is_run_id
from kopitiam.registry import Fence, Registry

OpenRun = Callable[..., str]
NOBODYS = "0" * 24
PATHS = {  # how a run gets into each state
    RunState.OPEN: [],
    RunState.SEALED: [RunState.SEALED],
    RunState.FINAL: [RunState.SEALED, RunState.FINAL],
    RunState.DONE: [RunState.SEALED, RunState.FINAL, RunState.DONE],
    RunState.FAILED: [RunState.FAILED],
    RunState.ENDED: [RunState.ENDED],
}
ILLEGAL = [(state, to) for state in RunState for to in RunState if to not in TRANSITIONS[state]]


def in_state(registry: Registry, run: str, state: RunState) -> str:
    for step in PATHS[state]:
        registry.move(run, step)
    return run


def test_a_new_run_is_open_and_has_all_tables(registry, clock) -> None:
    questions = Parameters().to_dict()
    run = registry.open_run(questions, "May", "anna", idempotency_key=None, lease_seconds=60, shards=4).run
    assert is_run_id(run.run)
    assert (run.state, run.label, run.owner, run.shards) == (RunState.OPEN, "May", "anna", 4)
    assert (run.questions, run.created_at, run.lease_expires_at) == (questions, clock(), clock() + 60)
    assert registry.get_run(run.run) == run
    assert list(registry.table_states(run.run)) == list(TABLES)


def test_an_unknown_run_is_not_found(registry) -> None:
    for ask in (
        registry.get_run,
        registry.run_account,
        registry.table_states,
        registry.version,
        registry.expectations,
        registry.progress,
        registry.partials,
        registry.results,
        registry.open_barrier,
    ):
        with pytest.raises(RunNotFound):
            ask(NOBODYS)
    with pytest.raises(RunNotFound):
        registry.chunks(NOBODYS, "users")
    with pytest.raises(RunNotFound):
        registry.move(NOBODYS, RunState.FAILED)
    with pytest.raises(RunNotFound):
        registry.force_end(NOBODYS, "gone")


def test_the_same_key_gives_the_same_run(registry, open_run: OpenRun) -> None:
    run = open_run(key="k")
    assert open_run(key="k") == run
    assert len(registry.list_runs(None, 10)) == 1


def test_an_opening_says_whether_the_run_is_new(registry) -> None:
    arguments: dict[str, Any] = {
        "questions": {},
        "label": "",
        "owner": "anna",
        "lease_seconds": 60,
        "shards": 1,
    }
    opened = [registry.open_run(**arguments, idempotency_key=key) for key in ("k", "k", None, None)]
    assert [each.is_new for each in opened] == [True, False, True, True]
    assert opened[1].run == opened[0].run


def test_idempotency_keys_of_different_owners_are_independent(open_run: OpenRun) -> None:
    assert open_run("anna", key="k") != open_run("ben", key="k")


def test_without_a_key_every_opening_is_a_new_run(open_run: OpenRun) -> None:
    assert open_run() != open_run()


@pytest.mark.parametrize("other", [{"label": "June"}, {"questions": {"top": 4}}])
def test_the_same_key_for_something_else_is_a_conflict(open_run: OpenRun, other) -> None:
    open_run(key="k")
    with pytest.raises(IdempotencyConflict):
        open_run(key="k", **other)


def test_a_key_used_by_many_threads_at_once_opens_one_run(registry, open_run: OpenRun) -> None:
    start = Barrier(10)

    def opening(_: int) -> str:
        start.wait()
        return open_run(key="k")

    with ThreadPoolExecutor(10) as pool:
        assert len(set(pool.map(opening, range(10)))) == 1
    assert len(registry.list_runs(None, 10)) == 1


def test_the_limit_of_open_runs_holds_for_each_owner(registry, open_run: OpenRun) -> None:
    first = open_run("anna", key="k", max_open_runs=2)
    open_run("anna", max_open_runs=2)
    with pytest.raises(TooManyRuns):
        open_run("anna", max_open_runs=2)
    open_run("ben", max_open_runs=2)
    assert open_run("anna", key="k", max_open_runs=2) == first
    registry.move(first, RunState.ENDED)
    open_run("anna", max_open_runs=2)


def test_the_limit_of_open_runs_holds_when_many_open_at_once(registry, open_run: OpenRun) -> None:
    start = Barrier(8)

    def opening(_: int) -> bool:
        start.wait()
        try:
            open_run(max_open_runs=3)
        except TooManyRuns:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(opening, range(8))) == 3


def test_runs_are_listed_newest_first_page_by_page(registry, open_run: OpenRun, clock) -> None:
    opened = []
    for index in range(7):
        opened.append(open_run(owner="anna" if index % 2 else "ben"))
        clock.advance(1 if index in (2, 5) else 0)  # several of one instant
    pages, before = [], None
    while page := registry.list_runs(None, 2, before):
        assert len(page) <= 2
        pages += page
        before = page[-1].cursor
    assert sorted(run.run for run in pages) == sorted(opened)
    assert [run.cursor for run in pages] == sorted((run.cursor for run in pages), reverse=True)
    assert {run.run for run in registry.list_runs("anna", 10)} == set(opened[1::2])
    assert (registry.count_listed(None), registry.count_listed("anna")) == (7, 3)


def test_runs_are_listed_by_state(registry, open_run: OpenRun) -> None:
    by_state = {state: in_state(registry, open_run(), state) for state in RunState}
    for state, run in by_state.items():
        assert [found.run for found in registry.list_runs(None, 10, states=(state,))] == [run]
    two = (RunState.DONE, RunState.ENDED)
    assert {run.state for run in registry.list_runs(None, 10, states=two)} == set(two)
    assert registry.count_listed(None, states=two) == 2


def test_runs_are_found_by_label_or_by_the_beginning_of_the_id(registry, open_run: OpenRun) -> None:
    january, percent = open_run(label="Penang, January"), open_run(label="100%_sure")

    def found(search: str, owner: str | None = None) -> set[str]:
        listed = {run.run for run in registry.list_runs(owner, 10, search=search)}
        assert registry.count_listed(owner, search=search) == len(listed)
        return listed

    assert found("penang") == found("JANUARY") == found(january[:12].upper()) == {january}
    assert found("100%") == found("%_s") == {percent}
    assert found("_%") == found("nobody's") == found("penang", "somebody else") == set()


@pytest.mark.parametrize(("state", "to"), ILLEGAL, ids="->".join)
def test_an_illegal_transition_is_refused_and_changes_nothing(registry, open_run, state, to) -> None:
    run = in_state(registry, open_run(), state)
    before = registry.run_account(run)
    with pytest.raises(IllegalTransition):
        registry.move(run, to)
    assert registry.run_account(run) == before


def test_a_run_that_is_over_says_when_and_why(registry, open_run: OpenRun, clock) -> None:
    run = open_run()
    clock.advance(5)
    moved = registry.move(run, RunState.FAILED, "users: 3 rows too many")
    assert moved == registry.get_run(run)
    assert (moved.finished_at, moved.error) == (clock(), "users: 3 rows too many")


def test_of_concurrent_moves_of_a_run_one_succeeds(registry, open_run: OpenRun) -> None:
    run, start = open_run(), Barrier(8)

    def moving(_: int) -> bool:
        start.wait()
        try:
            registry.move(run, RunState.SEALED)
        except IllegalTransition:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(moving, range(8))) == 1


@pytest.mark.parametrize("state", RunState)
def test_force_end_ends_what_is_not_over_yet(registry, open_run: OpenRun, state: RunState) -> None:
    run = in_state(registry, open_run(), state)
    assert registry.force_end(run, "requested") is not state.is_over
    after = registry.get_run(run)
    assert after.state is (state if state.is_over else RunState.ENDED)
    assert not registry.force_end(run, "again")


def test_an_open_run_expires_unless_its_lease_is_renewed(registry, open_run: OpenRun, put, clock) -> None:
    lost, renewed, sending, sealed = (open_run(lease_seconds=60) for _ in range(4))
    registry.move(sealed, RunState.SEALED)
    clock.advance(59)
    assert registry.expired_runs() == []
    registry.renew_lease(renewed, 60)
    put(sending, 0)
    clock.advance(1)
    assert [run.run for run in registry.expired_runs()] == [lost]
    clock.advance(59)
    assert {run.run for run in registry.expired_runs()} == {lost, renewed, sending}


def test_a_client_that_comes_back_in_time_is_not_ended(registry, open_run: OpenRun, clock) -> None:
    run = open_run(lease_seconds=60)
    clock.advance(60)
    assert registry.expired_runs()
    registry.renew_lease(run, 60)
    assert not registry.force_end(run, "client lost", only_if_expired=True)
    clock.advance(60)
    assert registry.force_end(run, "client lost", only_if_expired=True)
    with pytest.raises(RunOver):
        registry.renew_lease(run, 60)


def test_all_open_runs_are_given_a_full_lease_again(registry, open_run: OpenRun, clock) -> None:
    lost, alive, long, sealed = (open_run(lease_seconds=seconds) for seconds in (60, 60, 500, 60))
    registry.move(sealed, RunState.SEALED)
    clock.advance(100)
    registry.renew_lease(alive, 1000)
    versions = [registry.version(run) for run in (lost, alive, long)]
    registry.renew_open_runs()
    expiries = [registry.get_run(run).lease_expires_at - clock() for run in (lost, alive, long, sealed)]
    assert expiries == [60, 1000, 500, -40]
    assert [registry.version(run) for run in (lost, alive, long)] == versions
    assert registry.expired_runs() == []


def test_a_leader_that_was_replaced_renews_nothing(registry, open_run: OpenRun, clock) -> None:
    old = Fence("leader", registry.take_over("leader", "monitor-1", 1000), "monitor-1")
    registry.take_over("leader", "monitor-2", 1000)
    run = open_run(lease_seconds=60)
    clock.advance(100)
    with pytest.raises(StaleEpoch):
        registry.renew_open_runs(fence=old)
    assert [lost.run for lost in registry.expired_runs()] == [run]


def test_the_version_grows_with_changes_and_only_with_them(registry, open_run: OpenRun, put) -> None:
    run = open_run()
    versions = [registry.version(run)]

    def has_grown() -> bool:
        versions.append(registry.version(run))
        return versions[-1] > versions[-2]

    assert put(run, 0).outcome == "stored"
    assert has_grown()
    assert put(run, 0).outcome == "same"
    registry.renew_lease(run, 60)
    assert not registry.end_table(run, "users", 2, 20).sealed
    assert not has_grown()
    assert registry.end_table(run, "users", 1, 10).sealed
    assert has_grown()
    registry.force_end(run, "enough")
    assert has_grown()
    assert registry.run_account(run).figures.version == versions[-1]


def test_runs_that_are_over_for_long_are_found_and_deleted(registry, open_run: OpenRun, put, clock) -> None:
    old, young, alive = open_run(), open_run(), open_run()
    for run in (old, young, alive):
        put(run, 0)
    registry.move(old, RunState.FAILED)
    clock.advance(100)
    registry.move(young, RunState.FAILED)
    assert [run.run for run in registry.finished_before(clock())] == [old]

    assert registry.delete_run(old)
    assert not registry.delete_run(old)
    with pytest.raises(RunNotFound):
        registry.get_run(old)
    assert [entry.run for entry in registry.read_span(0, 0, 10)] == [young, alive]
    assert registry.last_sequence(0) == 3


def test_forgotten_chunks_leave_the_figures(registry, open_run: OpenRun, put) -> None:
    run = open_run()
    put(run, 0)
    registry.move(run, RunState.ENDED)
    registry.delete_chunks(run)
    assert registry.chunks(run, "users") == []
    assert registry.read_span(0, 0, 10) == []
    assert registry.table_states(run)["users"].rows == 10


def test_a_run_that_is_not_over_cannot_be_forgotten(registry, open_run: OpenRun, put) -> None:
    run = open_run()
    put(run, 0)
    for delete in (registry.delete_run, registry.delete_chunks):
        with pytest.raises(IllegalTransition):
            delete(run)
    assert len(registry.chunks(run, "users")) == 1


def test_the_most_shards_are_those_of_runs_under_way(
    registry: Registry, open_run: Callable[..., str]
) -> None:
    assert registry.max_shards() == 0
    open_run(shards=2)
    large = open_run(shards=5)
    assert registry.max_shards() == 5
    registry.move(large, RunState.ENDED, "no more")
    assert registry.max_shards() == 2
