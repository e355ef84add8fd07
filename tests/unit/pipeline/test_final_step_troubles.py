"""What a pipeline tells of a final step that could not be done."""

from types import SimpleNamespace

import pytest

from kopitiam.contracts.errors import Unavailable
from kopitiam.pipeline.worker import Worker
from kopitiam.system.health import Health


def test_a_final_step_without_room_is_told_without_paths_until_answers_are_out() -> None:
    outcomes: list[int | Unavailable] = [
        Unavailable("answers cannot be written: /srv/home/results: No room"),
        3,
    ]
    answered: list[tuple[str, int]] = []

    def finish(run: str) -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Unavailable):
            raise outcome
        return outcome

    worker = Worker.__new__(Worker)
    worker.node = SimpleNamespace(health=Health())  # type: ignore[assignment]
    worker._finalizer = SimpleNamespace(finish=finish)  # type: ignore[assignment]
    worker._reports = SimpleNamespace(answers=lambda run, rows: answered.append((run, rows)))  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        worker._finish("a-run")
    reason = worker.node.health.reason or ""
    assert reason.startswith("the final step waits to try again: answers cannot be written")
    assert "/srv" not in reason
    worker._finish("a-run")
    assert (worker.node.health.reason, answered) == (None, [("a-run", 3)])
