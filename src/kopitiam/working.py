"""The parts of a process, each at work on a thread of its own, the trouble that ends them, and whether a part
still answers.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError

_PAUSE = 0.75  # of the bound, between two looks: then this process itself stood still
_ASK_SECONDS = 1.0
LEAST_BOUND_SECONDS = 10.0  # a busy machine may take that long to answer, whatever the settings say
_log = logging.getLogger(__name__)
_FINISHING_SECONDS = 1.0  # what is not done by then is done again by the next life


@contextlib.contextmanager
def working(
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


class Pulse:
    """Whether something answers: a thread of its own asks again and again and may wait, and whoever
    wants to know looks when it answered last, and never waits.

    What happened while nobody looked is nobody's fault: a process that stood still itself gives what it asks
    as much time again.
    """

    def __init__(
        self, ask: Callable[[], object], bound_seconds: float, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._bound = bound_seconds
        self._steady = steady
        self._answered = self._looked = steady()
        self._lock = threading.Lock()
        self._left = threading.Event()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        self._answered = self._looked = self._steady()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()
        try:
            yield
        finally:
            self._left.set()

    @property
    def is_silent(self) -> bool:
        """For longer than its bound."""
        with self._lock:
            now = self._steady()
            gap, self._looked = now - self._looked, now
            if gap > _PAUSE * self._bound:
                self._answered += gap
            return not self._left.is_set() and now - self._answered > self._bound

    def answered(self) -> None:
        with self._lock:
            self._answered = self._steady()

    def _beat(self) -> None:
        while not self._left.is_set():
            try:
                self._ask()
            except Exception as error:  # not an answer
                _log.info("no answer: %s", error)
            else:
                self.answered()
            self._left.wait(_ASK_SECONDS)
