"""Attempts are counted when they begin; those that succeed or are withdrawn are deleted."""

import pytest

from kopitiam.contracts.batches import Attempt, Batch, Processed, verdict
from kopitiam.contracts.errors import StaleEpoch
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Fence


@pytest.fixture
def fence(registry) -> Fence:
    return Fence("pipeline-1", registry.take_over("pipeline-1", "life", 60), "life")


def test_an_attempt_counts_for_each_run_until_it_is_withdrawn(registry, open_run, clock, fence) -> None:
    one, other = open_run(), open_run()
    registry.begin_attempt("a1", "batch", [one, other], fence)
    clock.advance(1)
    registry.begin_attempt("a2", "batch", [one], fence)
    registry.begin_attempt("f1", "final", [one], fence)
    registry.fail_attempt("a2", "Spark's process died")

    attempts = registry.attempts([one, other, "unknown"], "batch")
    assert attempts == {one: [Attempt("a1"), Attempt("a2", "Spark's process died")], other: [Attempt("a1")]}
    assert registry.attempts([one], "final") == {one: [Attempt("f1")]}

    registry.withdraw_attempt("a1")
    registry.withdraw_attempt("a1")  # repeated: no effect
    assert registry.attempts([one, other], "batch") == {one: [Attempt("a2", "Spark's process died")]}


def test_a_commit_deletes_the_attempts_at_its_batch_only(registry, open_run, put, fence) -> None:
    one, other = open_run(), open_run()
    put(one, 0)
    registry.begin_attempt("a1", "batch", [one, other], fence)
    registry.begin_attempt("f1", "final", [one], fence)
    registry.commit_batch(Batch("q", 0, {0: (0, 1)}, (Processed(one, "users", 0, 1, 10),)), fence)
    assert registry.attempts([one, other], "batch") == {other: [Attempt("a1")]}
    assert registry.attempts([one], "final") == {one: [Attempt("f1")]}


def test_pipelines_at_other_shards_of_a_run_do_not_count_each_others_attempts(
    registry, open_run, put, fence
) -> None:
    run, other = open_run(), Fence("pipeline-2", registry.take_over("pipeline-2", "life", 60), "life")
    put(run, 0)
    registry.begin_attempt("a1", "batch", [run], fence)
    registry.begin_attempt("b1", "batch", [run], other)
    assert registry.attempts([run], "batch", "pipeline-2") == {run: [Attempt("b1")]}
    registry.commit_batch(Batch("q", 0, {0: (0, 1)}, (Processed(run, "users", 0, 1, 10),)), fence)
    assert registry.attempts([run], "batch") == {run: [Attempt("b1")]}


def test_published_answers_delete_the_attempts_at_them(registry, open_run, fence) -> None:
    run = open_run()
    registry.move(run, RunState.SEALED)
    registry.move(run, RunState.FINAL)
    assert registry.claim_final(run, fence)
    registry.begin_attempt("f1", "final", [run], fence)
    registry.begin_attempt("p1", "provisional", [run], fence)
    assert registry.publish_provisional(run, "p1", {})
    assert registry.attempts([run], "provisional") == {}
    registry.publish_results(run, "f1", {}, fence)
    assert registry.attempts([run], "final") == {}


def test_nothing_is_begun_under_a_stale_epoch_or_for_a_run_that_is_over(registry, open_run, fence) -> None:
    run, over = open_run(), open_run()
    registry.force_end(over, "cancelled")
    registry.begin_attempt("a1", "batch", [run, over, "unknown"], fence)
    assert registry.attempts([run, over], "batch") == {run: [Attempt("a1")]}
    registry.take_over("pipeline-1", "next life", 60)
    with pytest.raises(StaleEpoch):
        registry.begin_attempt("a2", "batch", [run], fence)
    registry.withdraw_attempt("a1")  # by the process that was replaced
    assert registry.attempts([run], "batch") == {}


def test_deleting_a_run_deletes_its_attempts(registry, open_run, fence) -> None:
    run = open_run()
    registry.begin_attempt("a1", "batch", [run], fence)
    registry.force_end(run, "cancelled")
    registry.delete_chunks(run)
    assert registry.attempts([run], "batch") == {}
    assert registry.delete_run(run)


def test_three_attempts_that_ended_badly_are_enough() -> None:
    died = Attempt("a", "Spark's process died")
    assert verdict("final", [died, died]) is None
    assert verdict("final", [Attempt("b"), Attempt("c"), died]) == (
        "the final step was tried three times and ended badly each time; the last time Spark's process died"
    )
    assert "died without an error" in str(verdict("batch", [died, died, Attempt("d")]))
