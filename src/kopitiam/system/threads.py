"""Runs the parts of a process on threads, and collects the first error that ends one of them."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError

_FINISHING_SECONDS = 1.0  # what is not done by then is done again by the next life


@contextlib.contextmanager
def run_threads(
    *works: Callable[[], None], stop: Sequence[Callable[[], None]], trouble: "Future[None]"
) -> Iterator[None]:
    """Each on a thread of its own while the block lasts; `trouble` gets what one of them raises."""

    def watched(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            fail(trouble, error)

    threads = [threading.Thread(target=watched, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for tell in stop:
            tell()
        for thread in threads:
            thread.join(_FINISHING_SECONDS)


def fail(trouble: "Future[None]", error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):  # the first one counts
        trouble.set_exception(error)
