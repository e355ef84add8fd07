"""Answers: one claimant makes them, one attempt is published."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunNotFound, RunOver, StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence, Published, Registry


@pytest.fixture
def final(registry, open_run) -> Callable[[], str]:
    def final_run() -> str:
        run = open_run()
        registry.move(run, RunState.SEALED)
        registry.move(run, RunState.FINAL)
        return run

    return final_run


@pytest.fixture
def alive(registry) -> Callable[[str], Fence]:
    """The fence of a new process of a node."""
    return lambda name: Fence(name, registry.take_over(name, "life", 10), "life")


def test_one_claimant_gets_a_final_run(registry, final, alive) -> None:
    run, one, other = final(), alive("pipeline-1"), alive("pipeline-2")
    assert registry.claim_final(run, one)
    assert registry.claim_final(run, one)
    assert not registry.claim_final(run, other)
    assert registry.get_run(run).state is RunState.FINAL


def test_of_concurrent_claims_one_succeeds(registry, final, alive) -> None:
    run, start = final(), Barrier(8)
    claimants = [alive(f"pipeline-{index}") for index in range(8)]

    def claiming(claimant: Fence) -> bool:
        start.wait()
        return registry.claim_final(run, claimant)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claiming, claimants)) == 1


def lease_expires(registry: Registry, clock, claimant: Fence) -> None:
    clock.advance(10)


def lease_is_released(registry: Registry, clock, claimant: Fence) -> None:
    assert registry.release(claimant.name, "life", claimant.epoch)


def node_lives_again(registry: Registry, clock, claimant: Fence) -> None:
    registry.take_over(claimant.name, "next life", 10)


@pytest.mark.parametrize("lost", [lease_expires, lease_is_released, node_lives_again])
def test_a_claim_without_a_current_lease_is_taken_over(registry, final, alive, clock, lost) -> None:
    run, former = final(), alive("pipeline-1")
    registry.claim_final(run, former)
    lost(registry, clock, former)
    other, third = alive("pipeline-2"), alive("pipeline-3")
    assert registry.claim_final(run, other)
    assert not registry.claim_final(run, third)
    with pytest.raises(StaleEpoch):
        registry.publish_results(run, "a1", {}, fence=former)


def test_a_restarted_claimant_claims_its_runs_again(registry, final, alive) -> None:
    run, old = final(), alive("pipeline-1")
    registry.claim_final(run, old)
    new = alive("pipeline-1")
    assert registry.claim_final(run, new)
    registry.publish_results(run, "a1", {}, fence=new)


def test_a_claimant_can_release_its_claim(registry, final, alive) -> None:
    run, one, other = final(), alive("pipeline-1"), alive("pipeline-2")
    registry.claim_final(run, one)
    registry.release_claim(run, other)
    assert not registry.claim_final(run, other)
    registry.release_claim(run, one)
    registry.release_claim(run, one)
    assert registry.claim_final(run, other)


def test_releasing_a_claim_of_an_unknown_run_has_no_effect(registry, alive) -> None:
    assert registry.release_claim("0" * 24, alive("pipeline-1")) is None


def test_only_a_run_whose_barrier_is_open_can_be_claimed(registry, open_run, alive) -> None:
    run, claimant = open_run(), alive("pipeline-1")
    for _ in range(2):
        with pytest.raises(IllegalTransition):
            registry.claim_final(run, claimant)
        if registry.get_run(run).state is RunState.OPEN:
            registry.move(run, RunState.SEALED)
    registry.move(run, RunState.ENDED)
    with pytest.raises(RunOver):
        registry.claim_final(run, claimant)
    with pytest.raises(RunNotFound):
        registry.claim_final("0" * 24, claimant)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_published_answers_finish_the_run(registry, final, alive, clock, is_claimed) -> None:
    run = final()
    if is_claimed:
        registry.claim_final(run, alive("pipeline-1"))
    assert registry.results(run) is None
    clock.advance(3)
    registry.publish_results(run, "a1", {"rows": {"1": 5}})
    assert registry.results(run) == Published("a1", {"rows": {"1": 5}}, clock())
    done = registry.get_run(run)
    assert (done.state, done.finished_at) == (RunState.DONE, clock())


def test_the_first_attempt_that_is_published_stays(registry, final) -> None:
    run = final()
    registry.publish_results(run, "a1", {"n": 1})
    registry.publish_results(run, "a1", {"n": 1})
    with pytest.raises(AlreadyPublished):
        registry.publish_results(run, "a2", {"n": 2})
    assert registry.results(run).figures == {"n": 1}


@pytest.mark.parametrize("to", [None, RunState.SEALED, RunState.ENDED, RunState.FAILED])
def test_a_run_that_is_not_ready_or_was_ended_gets_no_answers(registry, open_run, to) -> None:
    run = open_run()
    if to:
        registry.move(run, to)
    with pytest.raises(IllegalTransition):
        registry.publish_results(run, "a1", {})
    assert registry.results(run) is None


def test_answers_are_forgotten_with_their_run(registry, final) -> None:
    run = final()
    registry.publish_results(run, "a1", {})
    assert registry.delete_run(run)


def test_a_claimant_without_lease_changes_nothing(registry, final, clock) -> None:
    run = final()
    old = Fence("leader", registry.acquire_lease("leader", "one", 10), "one")
    clock.advance(10)
    new = Fence("leader", registry.acquire_lease("leader", "other", 10), "other")
    before = registry.run_account(run)
    others = (replace(new, epoch=new.epoch + 1), replace(new, holder="one"), Fence("nothing", 1, "one"))
    for stale in (old, *others):
        with pytest.raises(StaleEpoch):
            registry.claim_final(run, stale)
        with pytest.raises(StaleEpoch):
            registry.open_barrier(run, fence=stale)
        with pytest.raises(StaleEpoch):
            registry.publish_results(run, "a1", {}, fence=stale)
        with pytest.raises(StaleEpoch):
            registry.move(run, RunState.FAILED, fence=stale)
        with pytest.raises(StaleEpoch):
            registry.force_end(run, "", fence=stale)
    assert registry.run_account(run) == before
    assert registry.claim_final(run, new)
    registry.publish_results(run, "a2", {}, fence=new)


def test_only_the_claimant_of_a_run_publishes_its_answers(registry, final, alive) -> None:
    run, one, other = final(), alive("pipeline-1"), alive("pipeline-2")
    registry.claim_final(run, one)
    with pytest.raises(StaleEpoch, match="pipeline-2"):
        registry.publish_results(run, "a2", {}, other)
    registry.publish_results(run, "a1", {}, one)
    assert registry.get_run(run).state is RunState.DONE


def test_provisional_answers_are_replaced_by_later_ones_and_stop_with_the_run(
    registry, open_run, clock
) -> None:
    run = open_run()
    assert registry.provisional(run) is None
    assert registry.publish_provisional(run, "p1", {"processed": 1})
    clock.advance(1)
    assert registry.publish_provisional(run, "p2", {"processed": 2})
    assert registry.provisional(run) == Published("p2", {"processed": 2}, clock())
    registry.move(run, RunState.ENDED)
    assert not registry.publish_provisional(run, "p3", {"processed": 3})
    assert registry.provisional(run) == Published("p2", {"processed": 2}, clock())


def test_runs_whose_chunks_are_not_forgotten_yet_are_found(registry, open_run, put, clock) -> None:
    left, tidy, going = open_run(), open_run(), open_run()
    for run in (left, tidy, going):
        put(run, 0)
    for run in (left, tidy):
        registry.move(run, RunState.ENDED)
    registry.delete_chunks(tidy)
    clock.advance(10)
    assert [run.run for run in registry.finished_before(clock(), with_chunks=True)] == [left]
