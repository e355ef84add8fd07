"""Answers: one holder makes them, one attempt is published."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kopitiam.contracts.errors import AlreadyPublished, IllegalTransition, RunOver, StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence, Published


@pytest.fixture
def sealed(registry, open_run) -> Callable[[], str]:
    def sealed_run() -> str:
        run = open_run()
        registry.move(run, RunState.SEALED)
        return run

    return sealed_run


def test_one_holder_claims_a_sealed_run(registry, sealed) -> None:
    run = sealed()
    assert registry.claim_final(run, "pipeline-1")
    assert registry.claim_final(run, "pipeline-1")
    assert not registry.claim_final(run, "pipeline-2")
    assert registry.get_run(run).state is RunState.FINAL


def test_of_many_who_claim_one_succeeds(registry, sealed) -> None:
    run, start = sealed(), Barrier(8)

    def claiming(index: int) -> bool:
        start.wait()
        return registry.claim_final(run, f"pipeline-{index}")

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claiming, range(8))) == 1


def test_a_run_that_is_open_or_over_cannot_be_claimed(registry, open_run) -> None:
    run = open_run()
    with pytest.raises(IllegalTransition):
        registry.claim_final(run, "pipeline-1")
    registry.move(run, RunState.ENDED)
    with pytest.raises(RunOver):
        registry.claim_final(run, "pipeline-1")


@pytest.mark.parametrize("is_claimed", [True, False])
def test_published_answers_finish_the_run(registry, sealed, clock, is_claimed) -> None:
    run = sealed()
    if is_claimed:
        registry.claim_final(run, "pipeline-1")
    assert registry.results(run) is None
    clock.advance(3)
    registry.publish_results(run, "a1", {"rows": {"1": 5}})
    assert registry.results(run) == Published("a1", {"rows": {"1": 5}}, clock())
    done = registry.get_run(run)
    assert (done.state, done.finished_at) == (RunState.DONE, clock())


def test_the_first_attempt_that_is_published_stays(registry, sealed) -> None:
    run = sealed()
    registry.publish_results(run, "a1", {"n": 1})
    registry.publish_results(run, "a1", {"n": 1})
    with pytest.raises(AlreadyPublished):
        registry.publish_results(run, "a2", {"n": 2})
    assert registry.results(run).figures == {"n": 1}


@pytest.mark.parametrize("to", [None, RunState.ENDED, RunState.FAILED])
def test_a_run_that_is_not_ready_or_was_ended_gets_no_answers(registry, open_run, to) -> None:
    run = open_run()
    if to:
        registry.move(run, to)
    with pytest.raises(IllegalTransition):
        registry.publish_results(run, "a1", {})
    assert registry.results(run) is None


def test_answers_are_forgotten_with_their_run(registry, sealed) -> None:
    run = sealed()
    registry.publish_results(run, "a1", {})
    assert registry.forget_run(run)


def test_whoever_lost_the_lease_changes_nothing(registry, sealed, clock) -> None:
    run = sealed()
    old = Fence("leader", registry.acquire_lease("leader", "one", 10))
    clock.advance(10)
    new = Fence("leader", registry.acquire_lease("leader", "other", 10))
    before = registry.figures(run)
    for stale in (old, Fence("leader", new.epoch + 1), Fence("nothing", 1)):
        with pytest.raises(StaleEpoch):
            registry.claim_final(run, "one", fence=stale)
        with pytest.raises(StaleEpoch):
            registry.publish_results(run, "a1", {}, fence=stale)
        with pytest.raises(StaleEpoch):
            registry.move(run, RunState.FAILED, fence=stale)
        with pytest.raises(StaleEpoch):
            registry.force_end(run, "", fence=stale)
    assert registry.figures(run) == before
    assert registry.claim_final(run, "other", fence=new)
    registry.publish_results(run, "a2", {}, fence=new)
