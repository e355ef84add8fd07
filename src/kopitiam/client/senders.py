"""A few threads that work through what they are handed, so few at a time that memory stays bounded."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

Work = Callable[[], object]
WAITING = 2  # handed over and not begun, so that no thread is ever idle for want of work
_GRACE_SECONDS = 2.0


class Senders:
    """Whoever hands over work waits while all are busy, and is told of the first failure."""

    def __init__(self, threads: int) -> None:
        self._change = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._busy = 0
        self._is_over = False
        self._failure: BaseException | None = None
        # Daemons: a call that hangs must not keep an interrupted process alive.
        self._threads = [
            threading.Thread(target=self._serve, name=f"sender-{n}", daemon=True) for n in range(threads)
        ]

    def hand(self, work: Work) -> None:
        with self._change:
            self._change.wait_for(lambda: self._failure or len(self._waiting) < WAITING)
            self._raise_failure()
            self._waiting.append(work)
            self._change.notify_all()

    def finish(self) -> None:
        """Returns when all is done that was handed over."""
        with self._change:
            self._change.wait_for(lambda: self._failure or not (self._waiting or self._busy))
            self._raise_failure()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._change:
            self._is_over = True
            self._waiting.clear()
            self._change.notify_all()
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        while (work := self._take()) is not None:
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # raised again where the work came from
                failure = error
            del work  # a chunk that is done must not wait in memory for the next
            with self._change:
                self._busy -= 1
                self._failure = self._failure or failure
                self._change.notify_all()

    def _take(self) -> Work | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._is_over)
            if self._is_over:
                return None
            self._busy += 1
            self._change.notify_all()
            return self._waiting.popleft()
