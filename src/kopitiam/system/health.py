"""`Health`: whether the work of this process makes progress. `Pulse`: whether a part of it still responds."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_PAUSE = 0.75  # of the bound; a longer gap between two checks means that this process itself was suspended
_ASK_SECONDS = 1.0
LEAST_BOUND_SECONDS = 10.0  # lower settings have no effect: a busy machine may take that long to respond
_log = logging.getLogger(__name__)
_FINAL_STEP_SECONDS = 30.0  # a failed final step is retried every ten; after this its run may be over


@dataclass
class Health:
    """Progress of the work, for a gateway in the same process or the heartbeats of a fleet's pipeline.

    Clients see `failure` and `reason`, which name no path of the server.
    """

    failure: str | None = None  # of the stream and of Spark's process
    steps: int = 0  # batches committed, answers published, runs failed: each is progress
    steady: Callable[[], float] = field(default=time.monotonic, repr=False)
    _final: tuple[float, str] | None = None  # when a final step last failed, and why

    @property
    def reason(self) -> str | None:
        """Why the work makes no progress; None if it does. Final steps may fail while the stream works."""
        if self.failure is not None:
            return self.failure
        failed = self._final
        if failed is None or self.steady() - failed[0] > _FINAL_STEP_SECONDS:
            return None
        return failed[1]

    def record_progress(self) -> None:
        self.steps += 1
        self.failure = None

    def on_final_step_failed(self, reason: str) -> None:
        self._final = (self.steady(), reason)

    def on_final_step_succeeded(self) -> None:
        self._final = None


class Pulse:
    """Whether something responds: a thread calls it at intervals and may block; `is_silent` compares the time
    of the last response and never blocks.

    If this process itself was suspended, the bound is extended by that time.
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
        """Whether there was no response for longer than the bound."""
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
            except Exception as error:  # not a response
                _log.info("no response: %s", error)
            else:
                self.answered()
            self._left.wait(_ASK_SECONDS)
