"""Provisional answers: asked of a pipeline over the bus, found again in the registry."""

import time
from collections.abc import Callable

from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.messages import PROVISIONAL_QUEUE, ProvisionalWanted
from kopitiam.contracts.runs import Run, RunState
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.problems import Refusal

PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def provisional_attempt(gateway: Gateway, run: Run, pause: Callable[[float], None] = time.sleep) -> str:
    """Answers to all that was processed when they were asked for."""
    wanted = _rows_processed(gateway, run.run)
    if (attempt := _made(gateway, run, wanted)) is not None:
        return attempt
    with gateway.admission.waiting():
        gateway.bus.send(PROVISIONAL_QUEUE, ProvisionalWanted(run=run.run))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (attempt := _made(gateway, run, wanted)) is None:
            if gateway.registry.get_run(run.run).state.is_over:
                raise RunOver(f"run {run.run} is over; ask for its answers instead")
            if time.monotonic() > deadline:
                raise Refusal(503, "not_ready", "no pipeline has answered yet; try again")
            pause(_LOOK_SECONDS)
    return attempt


def _made(gateway: Gateway, run: Run, wanted: int) -> str | None:
    made = gateway.registry.provisional(run.run)
    if made is None or made.figures["processed"] < wanted:
        return None
    is_known = run.state is RunState.OPEN or made.figures["expected"] is not None
    return made.attempt if is_known else None


def _rows_processed(gateway: Gateway, run: str) -> int:
    progress = gateway.registry.progress(run)
    return sum(volume.rows for by_shard in progress.values() for volume in by_shard.values())
