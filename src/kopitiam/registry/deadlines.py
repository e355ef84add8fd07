"""How long a call of the registry may take, with all that it does."""

import contextlib
import threading
import time
from collections.abc import Iterator

CALL_SECONDS = 15.0  # for a call with all its retries


class _Of(threading.local):
    moment: float | None = None


_call = _Of()


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bounds the calls of this thread in the block. An outer block that ends earlier counts."""
    before = _call.moment
    moment = time.monotonic() + seconds
    _call.moment = moment if before is None else min(before, moment)
    try:
        yield
    finally:
        _call.moment = before


def seconds_left() -> float:
    return CALL_SECONDS if _call.moment is None else max(0.0, _call.moment - time.monotonic())
