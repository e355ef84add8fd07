"""`Health`: whether the work of this process makes progress. `Pulse`: whether a part of it still answers."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_PAUSE = 0.75  # of the bound, between two looks: then this process itself stood still
_ASK_SECONDS = 1.0
LEAST_BOUND_SECONDS = 10.0  # a busy machine may take that long to answer, whatever the settings say
_log = logging.getLogger(__name__)
_FINAL_STEP_SECONDS = 30.0  # a final step that failed is tried again every ten; then its run may be over


@dataclass
class Health:
    """Written by the work, read by a gateway in the same process or by the heartbeats of a fleet's pipeline.
    `trouble` and `reason` are for clients: they name no path of the server."""

    trouble: str | None = None  # of the stream and of Spark's process
    steps: int = 0  # batches committed, answers published, runs failed for good: the work gets on
    steady: Callable[[], float] = field(default=time.monotonic, repr=False)
    _final: tuple[float, str] | None = None  # when a final step last failed, and why

    @property
    def reason(self) -> str | None:
        """Why the work makes no progress; None if it does. The stream may go on while final steps cannot."""
        if self.trouble is not None:
            return self.trouble
        failed = self._final
        if failed is None or self.steady() - failed[0] > _FINAL_STEP_SECONDS:
            return None
        return failed[1]

    def got_on(self) -> None:
        self.steps += 1
        self.trouble = None

    def on_final_step_failed(self, reason: str) -> None:
        self._final = (self.steady(), reason)

    def on_answered(self) -> None:
        self._final = None


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
