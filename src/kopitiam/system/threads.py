"""Runs the parts of a process on threads, and collects the first error that ends one of them."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError

_FINISHING_SECONDS = 1.0  # the next process repeats work that is not done by then


@contextlib.contextmanager
def run_threads(
    *works: Callable[[], None], stop: Sequence[Callable[[], None]], failure: "Future[None]"
) -> Iterator[None]:
    """Run each function on its own thread during the block, then call `stop` and wait briefly for them.

    `failure` gets the first exception that one of them raises.
    """

    def watched(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            fail(failure, error)

    threads = [threading.Thread(target=watched, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for call in stop:
            call()
        for thread in threads:
            thread.join(_FINISHING_SECONDS)


def fail(failure: "Future[None]", error: Exception) -> None:
    """Set the exception, unless the future has one."""
    with contextlib.suppress(InvalidStateError):
        failure.set_exception(error)
