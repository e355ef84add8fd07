"""Partials: a merged partial replaces all of its inputs, or nothing changes."""

import pytest

from kopitiam.contracts.batches import Batch, Partial
from kopitiam.contracts.errors import StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence

SMALL = ["p/batch=1/kind=a", "p/batch=2/kind=a", "p/batch=3/kind=a"]


@pytest.fixture
def run(registry, open_run) -> str:
    """With three partials."""
    run = open_run()
    partials = tuple(Partial(run, path, 0, 5) for path in reversed(SMALL))
    registry.commit_batch(Batch("q", 0, {}, (), partials))
    return run


def test_partials_are_listed_by_path(registry, run, open_run) -> None:
    assert registry.partials(run) == [Partial(run, path, 0, 5) for path in SMALL]
    assert registry.partials(open_run()) == []


def test_merged_partials_are_replaced_by_one(registry, run) -> None:
    version = registry.version(run)
    merged = Partial(run, "p/merge=1/kind=a", 1, 10)
    assert registry.replace_partials(run, iter(SMALL[:2]), merged)
    assert registry.partials(run) == [Partial(run, SMALL[2], 0, 5), merged]
    assert registry.version(run) == version


def test_a_replacement_may_be_repeated(registry, run) -> None:
    merged = Partial(run, "p/merge=1/kind=a", 1, 10)
    assert registry.replace_partials(run, SMALL[:2], merged)
    assert registry.replace_partials(run, SMALL[:2], merged)
    assert len(registry.partials(run)) == 2


@pytest.mark.parametrize("old", [[SMALL[0], "p/unknown"], [SMALL[1], SMALL[2]]])
def test_partials_that_are_not_all_there_stay_as_they_are(registry, run, old) -> None:
    registry.replace_partials(run, SMALL[1:2], Partial(run, "p/merge=1", 1))
    before = registry.partials(run)
    assert not registry.replace_partials(run, old, Partial(run, "p/merge=2", 1))
    assert registry.partials(run) == before


def test_partials_of_another_run_are_not_replaced(registry, run, open_run) -> None:
    other = open_run()
    assert not registry.replace_partials(other, SMALL, Partial(other, "p/merge=1", 1))
    assert len(registry.partials(run)) == 3


@pytest.mark.parametrize("to", [RunState.FAILED, RunState.ENDED])
def test_nothing_is_replaced_of_a_run_that_is_over_or_gone(registry, run, to) -> None:
    registry.move(run, to)
    merged = Partial(run, "p/merge=1", 1)
    assert not registry.replace_partials(run, SMALL, merged)
    assert len(registry.partials(run)) == 3
    registry.delete_run(run)
    assert not registry.replace_partials(run, SMALL, merged)
    assert registry.partial_paths("") == set()


def test_a_replacement_has_something_to_replace_and_is_of_the_same_run(registry, run, open_run) -> None:
    for old, new in (([], Partial(run, "p/merge=1")), (SMALL, Partial(open_run(), "p/merge=1"))):
        with pytest.raises(ValueError, match="expected partials"):
            registry.replace_partials(run, old, new)
    assert len(registry.partials(run)) == 3


def test_behind_the_barrier_nothing_is_replaced(registry, run) -> None:
    before = registry.partials(run)
    registry.move(run, RunState.SEALED)
    registry.move(run, RunState.FINAL)
    assert not registry.replace_partials(run, [before[0].path], Partial(run, "merged", 1))
    assert registry.partials(run) == before


def test_a_superseded_pipeline_replaces_nothing(registry, run) -> None:
    old = Fence("pipeline-1", registry.take_over("pipeline-1", "life-1", 10), "life-1")
    registry.take_over("pipeline-1", "life-2", 10)
    with pytest.raises(StaleEpoch):
        registry.replace_partials(run, SMALL, Partial(run, "p/merge=1"), fence=old)
    assert len(registry.partials(run)) == 3


def test_paths_are_found_by_exactly_their_prefix(registry, open_run) -> None:
    paths = ["a_b/1", "a%b/1", "axb/1", "A_B/1", "ä_b/1", "x/a_b/1"]
    run = open_run()
    registry.commit_batch(Batch("q", 0, {}, (), tuple(Partial(run, path) for path in paths)))
    for prefix in ("a_b/", "a%", "A", "ä_b/1", "x", "b"):
        assert registry.partial_paths(prefix) == {path for path in paths if path.startswith(prefix)}
    assert registry.partial_paths("") == set(paths)
