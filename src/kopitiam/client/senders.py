"""Threads of an upload: a bounded pool that sends chunks, and the heartbeat that keeps the run's lease."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from kopitiam.contracts.errors import KopitiamError

BEAT_SECONDS = 15.0


@contextmanager
def heartbeat(beat: Callable[[], object], every_seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Call `beat` regularly in a thread until the block ends.

    It keeps the lease while an upload has nothing to send, for example when the disk is slow.
    """
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(every_seconds):
            with suppress(KopitiamError):  # the upload itself fails in the same way and reports it
                beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=1.0)


Work = Callable[[], object]
MAX_QUEUED = 2  # tasks beside those that run: enough to keep every thread busy
_GRACE_SECONDS = 2.0


class Senders:
    """A thread pool with a short queue, so that memory stays bounded.

    After the first failure, `submit` and `wait` raise it.
    """

    def __init__(self, threads: int) -> None:
        self._change = threading.Condition()
        self._queue: deque[Work] = deque()
        self._busy = 0
        self._is_closed = False
        self._failure: BaseException | None = None
        # Daemons: a call that hangs must not keep an interrupted process alive.
        self._threads = [
            threading.Thread(target=self._run, name=f"sender-{n}", daemon=True) for n in range(threads)
        ]

    def submit(self, work: Work) -> None:
        """Queue `work`; blocks while the queue is full."""
        with self._change:
            self._change.wait_for(lambda: self._failure or len(self._queue) < MAX_QUEUED)
            self._raise_failure()
            self._queue.append(work)
            self._change.notify_all()

    def wait(self) -> None:
        """Block until all submitted work is done."""
        with self._change:
            self._change.wait_for(lambda: self._failure or not (self._queue or self._busy))
            self._raise_failure()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._change:
            self._is_closed = True
            self._queue.clear()
            self._change.notify_all()
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (work := self._take()) is not None:
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # raised again by `submit` or `wait`
                failure = error
            del work  # frees the chunk before the thread waits for the next one
            with self._change:
                self._busy -= 1
                self._failure = self._failure or failure
                self._change.notify_all()

    def _take(self) -> Work | None:
        with self._change:
            self._change.wait_for(lambda: self._queue or self._is_closed)
            if self._is_closed:
                return None
            self._busy += 1
            self._change.notify_all()
            return self._queue.popleft()
