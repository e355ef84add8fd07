"""Waiting for a state, the same in every suite.

Patience is generous, because it costs nothing where the state comes: a machine with other work beside the
tests needs many times as long as a quiet one.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 90.0
_STAYING_SECONDS = 0.05
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.0005, 0.02


def eventually(look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Return what `look` gives as soon as it is true; fail if it is not within `seconds`."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s; last seen: {seen!r}"
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return seen


def stays(is_so: Callable[[], bool]) -> bool:
    """Return whether the condition holds for a short time, when there is no event to wait for."""
    deadline = time.monotonic() + _STAYING_SECONDS
    while is_so():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.002)
    return False
