"""Attempts at a step of a run: how many may end badly, and with which reason the run then fails. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Step = Literal["batch", "final", "provisional"]

MOST_ATTEMPTS = 3
_STEPS: dict[Step, str] = {
    "batch": "a batch of it",
    "final": "the final step",
    "provisional": "the provisional step",
}
_WITHOUT_A_WORD = "the pipeline's process ended without a word"


@dataclass(frozen=True)
class Attempt:
    """One that has begun and not ended well; without a reason, its process ended before it could tell one."""

    attempt: str
    reason: str | None = None


def verdict(step: Step, attempts: Sequence[Attempt]) -> str | None:
    """Why there is no further attempt; None if there may be one."""
    if len(attempts) < MOST_ATTEMPTS:
        return None
    times = {3: "three times"}.get(len(attempts), f"{len(attempts)} times")
    last = attempts[-1].reason or _WITHOUT_A_WORD
    return f"{_STEPS[step]} was tried {times} and ended badly each time; the last time {last}"
