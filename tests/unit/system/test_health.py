"""`Health`: the reason that a process shows for work without progress."""

from kopitiam.system.health import Health


def test_a_failed_final_step_is_shown_while_batches_are_committed() -> None:
    health = Health(steady=lambda: 100.0)
    health.on_final_step_failed("no space left")
    health.record_progress()
    assert (health.failure, health.reason) == (None, "no space left")
    health.on_final_step_succeeded()
    assert health.reason is None


def test_failure_of_the_stream_takes_precedence() -> None:
    health = Health(failure="storage is away", steady=lambda: 100.0)
    health.on_final_step_failed("no space left")
    assert health.reason == "storage is away"


def test_a_final_step_that_is_not_retried_is_forgotten() -> None:
    now = [100.0]
    health = Health(steady=lambda: now[0])
    health.on_final_step_failed("no space left")
    now[0] += 29
    assert health.reason == "no space left"
    now[0] += 2
    assert health.reason is None
