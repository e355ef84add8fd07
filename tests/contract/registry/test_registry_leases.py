"""Leases: one holder at a time, and an epoch that only grows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kopitiam.contracts.errors import StaleEpoch
from kopitiam.registry import Fence, Lease
from kopitiam.registry.records import ranked_holder


def test_a_free_lease_is_given_with_its_first_epoch(registry) -> None:
    assert registry.acquire_lease("leader", "one", 10) == 1
    assert registry.holds(Fence("leader", 1, "one"))


def test_leases_of_different_names_are_independent(registry) -> None:
    assert registry.acquire_lease("leader", "one", 10) == 1
    assert registry.acquire_lease("node/gateway-1", "other", 10) == 1


def test_the_holder_keeps_its_epoch_and_others_wait(registry, clock) -> None:
    assert registry.acquire_lease("leader", "one", 10) == 1
    clock.advance(9)
    assert registry.acquire_lease("leader", "other", 10) is None
    assert registry.acquire_lease("leader", "one", 10) == 1
    clock.advance(9)
    assert registry.acquire_lease("leader", "other", 10) is None


def test_an_expired_lease_is_taken_over_with_a_larger_epoch(registry, clock) -> None:
    registry.acquire_lease("leader", "one", 10)
    clock.advance(10)
    assert not registry.holds(Fence("leader", 1, "one"))
    assert registry.acquire_lease("leader", "other", 10) == 2
    assert not registry.renew("leader", "one", 1, 10)
    assert not registry.release("leader", "one", 1)
    assert registry.holds(Fence("leader", 2, "other"))


def test_an_expired_lease_is_acquired_with_a_new_epoch(registry, clock) -> None:
    registry.acquire_lease("leader", "one", 10)
    clock.advance(10)
    assert registry.acquire_lease("leader", "one", 10) == 2


def test_an_expired_lease_that_was_not_taken_is_renewed(registry, clock) -> None:
    registry.acquire_lease("leader", "one", 10)
    clock.advance(50)
    assert not registry.holds(Fence("leader", 1, "one"))
    assert registry.renew("leader", "one", 1, 10)
    assert registry.holds(Fence("leader", 1, "one"))


def test_an_expired_lease_fences_until_it_is_taken(registry, open_run, clock) -> None:
    old = Fence("leader", registry.acquire_lease("leader", "one", 10), "one")
    clock.advance(50)
    assert registry.force_end(open_run(), "", fence=old)
    new = Fence("leader", registry.acquire_lease("leader", "other", 10), "other")
    with pytest.raises(StaleEpoch):
        registry.force_end(open_run(), "", fence=old)
    assert registry.force_end(open_run(), "", fence=new)


def test_a_lease_that_was_given_back_fences_nothing(registry, open_run) -> None:
    lease = Fence("leader", registry.acquire_lease("leader", "one", 10), "one")
    assert registry.release("leader", "one", lease.epoch)
    with pytest.raises(StaleEpoch):
        registry.force_end(open_run(), "", fence=lease)


def test_the_new_holder_of_an_expired_lease_wins_over_the_old_one(registry, open_run, clock) -> None:
    """Concurrent writes of the former holder are committed before the take-over, or not at all."""
    old = Fence("leader", registry.acquire_lease("leader", "one", 10), "one")
    clock.advance(50)
    runs, start = [open_run() for _ in range(20)], threading.Barrier(2)
    is_taken = threading.Event()

    def writing() -> list[bool]:
        start.wait()
        written: list[bool] = []
        for run in runs:
            was_taken = is_taken.is_set()
            try:
                registry.force_end(run, "", fence=old)
            except StaleEpoch:
                return written
            written.append(was_taken)
        return written

    def taking() -> None:
        start.wait()
        assert registry.acquire_lease("leader", "other", 10) == old.epoch + 1
        is_taken.set()

    with ThreadPoolExecutor(2) as pool:
        written, taken = pool.submit(writing), pool.submit(taking)
        taken.result()
        assert not any(written.result())


def test_a_lease_is_taken_over_from_a_lower_or_the_same_rank(registry) -> None:
    assert registry.take_over_if_higher("leader", 2, "b", 10) == 1
    assert registry.take_over_if_higher("leader", 2, "b", 10) == 1
    assert registry.take_over_if_higher("leader", 1, "a", 10) is None
    assert registry.take_over_if_higher("leader", 2, "b again", 10) == 2
    assert registry.take_over_if_higher("leader", 10, "j", 10) == 3
    assert not registry.renew("leader", ranked_holder(2, "b again"), 2, 10)
    assert registry.renew("leader", ranked_holder(10, "j"), 3, 10)


def test_a_lower_rank_leads_when_the_lease_of_the_higher_has_run_out(registry, clock) -> None:
    registry.take_over_if_higher("leader", 3, "c", 10)
    clock.advance(10)
    assert registry.take_over_if_higher("leader", 1, "a", 10) == 2


def test_a_renewed_lease_lasts(registry, clock) -> None:
    registry.acquire_lease("leader", "one", 10)
    clock.advance(9)
    assert registry.renew("leader", "one", 1, 10)
    assert not registry.renew("leader", "other", 1, 10)
    clock.advance(9)
    assert registry.holds(Fence("leader", 1, "one"))


def test_a_released_lease_is_free_and_its_epoch_is_never_given_again(registry) -> None:
    registry.acquire_lease("leader", "one", 10)
    assert registry.release("leader", "one", 1)
    assert not registry.holds(Fence("leader", 1, "one"))
    assert registry.acquire_lease("leader", "other", 10) == 2


@pytest.mark.parametrize("take", ["acquire_lease", "take_over"])
def test_a_lease_has_a_holder(registry, take: str) -> None:
    with pytest.raises(ValueError, match="holder"):
        getattr(registry, take)("leader", "", 10)


def test_a_restarted_node_supersedes_its_old_process_at_once(registry, open_run) -> None:
    old = registry.take_over("node/pipeline-1", "life-1", 10)
    new = registry.take_over("node/pipeline-1", "life-2", 10)
    assert (old, new) == (1, 2)
    assert not registry.holds(Fence("node/pipeline-1", old, "life-1"))
    assert not registry.renew("node/pipeline-1", "life-1", old, 10)
    with pytest.raises(StaleEpoch):
        registry.force_end(open_run(), "", fence=Fence("node/pipeline-1", old, "life-1"))
    assert registry.renew("node/pipeline-1", "life-2", new, 10)


def test_each_take_over_gets_a_new_epoch(registry, clock) -> None:
    assert [registry.take_over("node/gateway-1", "same", 10) for _ in range(2)] == [1, 2]
    assert registry.release("node/gateway-1", "same", 2)
    assert registry.take_over("node/gateway-1", "same", 10) == 3
    clock.advance(10)
    assert registry.acquire_lease("node/gateway-1", "other", 10) == 4


def test_leases_are_listed_with_how_long_they_are_overdue(registry, clock) -> None:
    registry.take_over_if_higher("leader", 2, "one", 10)
    registry.take_over("gateway-1", "life", 5)
    registry.release("gateway-1", "life", 1)
    clock.advance(12)
    leases = registry.leases()
    assert leases["leader"] == Lease(1, ranked_holder(2, "one"), overdue_seconds=2)
    assert (leases["leader"].rank, leases["gateway-1"].rank) == (2, None)
    assert (leases["leader"].is_released, leases["gateway-1"].is_released) == (False, True)


def test_concurrent_take_overs_get_different_epochs(registry) -> None:
    with ThreadPoolExecutor(5) as pool:
        epochs = list(
            pool.map(lambda life: registry.take_over("node/pipeline-1", f"life-{life}", 10), range(20))
        )
    assert sorted(epochs) == list(range(1, 21))


def test_epochs_strictly_increase_with_concurrent_holders(registry) -> None:
    epochs: list[int] = []
    is_held = threading.Lock()

    def taking_turns(holder: str) -> None:
        turns = 0
        while turns < 10:
            if (epoch := registry.acquire_lease("leader", holder, 10)) is None:
                continue
            assert is_held.acquire(blocking=False), "two held the lease at once"
            epochs.append(epoch)
            is_held.release()
            assert registry.release("leader", holder, epoch)
            turns += 1

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(taking_turns, "abcde"))
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 50
