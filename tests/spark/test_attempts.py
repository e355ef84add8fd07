"""Failed attempts count, and the third fails the run; attempts that end for other reasons are withdrawn."""

import pytest
from chunked_sales import cut, plain, sales
from pipelines import Killed, Pipeline

from kopitiam.contracts.errors import RegistryUnavailable, RunFailed, Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import finalize
from kopitiam.pipeline.batches import BatchWork

CHUNKS = cut(sales(seed=9), rows_a_chunk=20)
ALWAYS = 10


@pytest.fixture
def ready(make_pipeline) -> tuple[Pipeline, str]:
    """A run behind its barrier."""
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    pipeline.registry.open_barrier(run)
    return pipeline, run


def raising(error: Exception):
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_batch_that_crashes_is_retried_run_by_run_and_only_the_run_that_caused_it_fails(
    make_pipeline, monkeypatch
):
    pipeline = make_pipeline()
    innocent, guilty, other = (pipeline.upload(CHUNKS) for _ in range(3))
    write, tried = BatchWork._write, []

    def die_of_the_guilty(work, batch, shares):
        tried.append({share.run.run for share in shares})
        if guilty in tried[-1]:
            raise Killed("batch")
        return write(work, batch, shares)

    monkeypatch.setattr(BatchWork, "_write", die_of_the_guilty)
    deaths = 0
    while not pipeline.committed:
        assert deaths < ALWAYS
        try:
            pipeline.step()
        except Killed:
            deaths += 1

    assert deaths == 3
    assert tried[0] == {innocent, guilty, other}
    assert all(len(runs) == 1 for runs in tried[1:])
    assert sum(runs == {guilty} for runs in tried) == 2
    reason = pipeline.reason(guilty)
    assert reason.startswith("a batch of it was tried three times and ended badly each time; the last time ")
    assert "Killed" in reason
    assert pipeline.registry.attempts([innocent, other], "batch") == {}
    monkeypatch.undo()
    pipeline.finish(innocent, other)
    assert pipeline.answers(innocent) == pipeline.answers(other) == plain(CHUNKS)


def test_a_final_step_that_always_crashes_fails_its_run_after_three_attempts(ready, monkeypatch):
    pipeline, run = ready
    with monkeypatch.context() as patches:
        patches.setattr(finalize, "answer", raising(Killed("final")))
        for _ in range(3):
            assert pipeline.state(run) is RunState.FINAL
            with pytest.raises(Killed):
                pipeline.finalizer.finish(run)
    assert "the final step was tried three times" in pipeline.reason(run)


def test_an_attempt_whose_process_was_killed_counts_without_a_reason(ready):
    pipeline, run = ready
    for number in range(3):  # each attempt begins and never ends
        pipeline.registry.begin_attempt(f"attempt {number}", "final", [run], pipeline.fence)
    assert pipeline.finalizer.finish(run) is None
    assert pipeline.reason(run).endswith("the last time the pipeline's process died without an error")


@pytest.mark.long
def test_two_failed_attempts_are_forgotten_when_the_third_succeeds(ready):
    pipeline, run = ready
    for number in range(2):
        pipeline.registry.begin_attempt(f"attempt {number}", "final", [run], pipeline.fence)
    pipeline.finalizer.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)
    assert pipeline.registry.attempts([run], "final") == {}


@pytest.mark.long
def test_an_attempt_that_ends_without_fault_of_its_run_is_withdrawn(ready, monkeypatch):
    pipeline, run = ready
    monkeypatch.setattr(finalize, "answer", raising(Unavailable("storage is away")))
    for _ in range(4):
        with pytest.raises(Unavailable):
            pipeline.finalizer.finish(run)
    assert pipeline.registry.attempts([run], "final") == {}

    def stop_and_fail(*_):
        pipeline.stopping.set()
        raise Killed("cancelled by a stop")

    monkeypatch.setattr(finalize, "answer", stop_and_fail)
    with pytest.raises(Killed):
        pipeline.finalizer.finish(run)
    pipeline.stopping.clear()
    assert pipeline.registry.attempts([run], "final") == {}
    monkeypatch.undo()
    pipeline.finalizer.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


def test_a_stop_withdraws_all_running_attempts(ready, monkeypatch):
    pipeline, run = ready
    attempts_seen = []

    def stop(*_):
        attempts_seen.append(pipeline.registry.attempts([run], "final"))
        pipeline.work.attempts.withdraw_all()
        attempts_seen.append(pipeline.registry.attempts([run], "final"))
        raise Killed("the process ends here")

    monkeypatch.setattr(finalize, "answer", stop)
    with pytest.raises(Killed):
        pipeline.finalizer.finish(run)
    begun, withdrawn = attempts_seen
    assert (len(begun[run]), withdrawn) == (1, {})
    assert pipeline.registry.attempts([run], "final") == {}


@pytest.mark.long
def test_a_commit_that_fails_withdraws_the_attempt(make_pipeline, monkeypatch):
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    with monkeypatch.context() as patches:
        patches.setattr(pipeline.registry, "commit_batch", raising(RegistryUnavailable("registry: away")))
        for _ in range(4):
            with pytest.raises(RegistryUnavailable):
                pipeline.step()
            assert pipeline.registry.attempts([run], "batch") == {}
    pipeline.process()
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


@pytest.mark.long
def test_provisional_answers_that_always_crash_are_given_up_and_the_run_continues(ready, monkeypatch):
    pipeline, run = ready
    with monkeypatch.context() as patches:
        patches.setattr(finalize, "answer", raising(Killed("provisional")))
        for _ in range(3):
            with pytest.raises(Killed):
                pipeline.finalizer.provide(run)
    with pytest.raises(RunFailed, match="the provisional step was tried three times"):
        pipeline.finalizer.provide(run)
    pipeline.finalizer.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)
