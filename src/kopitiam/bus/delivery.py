"""The last step of a message's way, the same on every bus: decoded, and given to a handler on a thread
that belongs to this one subscription, so that a slow handler delays nobody else.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kopitiam.bus.codec import decode
from kopitiam.bus.port import Handler, Subscription

LIMIT = 100_000  # messages that may pile up where nobody takes them
REDELIVERIES = 3  # of a message in a queue, when its handler fails
_FIRST_PAUSE_SECONDS = 0.1  # before it is given out again; doubles each time
_CANCEL_SECONDS = 5.0  # for a call that is under way
_SAMPLE = 200  # bytes of a dropped message that are logged
_log = logging.getLogger(__name__)

Outcome = Literal["done", "again", "dropped", "untouched"]


@dataclass(frozen=True)
class Parcel:
    body: bytes
    settle: Callable[[Outcome], None] = lambda _: None  # called at most once, on any thread
    redeliveries: int | None = None  # so far; None if it is never given out again


class Courier(Subscription):
    """Takes parcels from any thread, and calls the handler with them in their order."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        on_end: Callable[["Courier"], None],
        limit: int = LIMIT,
    ) -> None:
        """`on_end` is called when the handler has been called for the last time, and has returned."""
        self._name = name
        self._handler = handler
        self._on_end = on_end
        self._limit = limit
        self._inbox: deque[Parcel] = deque()
        self._changed = threading.Condition()
        self._is_stopped = threading.Event()
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name=f"bus {name}", daemon=True)
        self._thread.start()

    def put(self, parcel: Parcel) -> bool:
        """False if it is cancelled, and the parcel somebody else's. A full inbox loses its oldest."""
        with self._changed:
            if self._is_stopped.is_set():
                return False
            if len(self._inbox) >= self._limit:
                self._inbox.popleft()
                self._count_loss()
            self._inbox.append(parcel)
            self._changed.notify()
            return True

    def cancel(self) -> None:
        self.tell_to_stop()
        self.join(_CANCEL_SECONDS)

    def tell_to_stop(self) -> None:
        with self._changed:
            self._is_stopped.set()
            left = list(self._inbox)
            self._inbox.clear()
            self._changed.notify()
        for parcel in left:
            parcel.settle("untouched")

    def join(self, seconds: float) -> None:
        """Not from the handler, which would wait for itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _count_loss(self) -> None:
        if self._lost % self._limit == 0:  # a line for the first, and for each full inbox that follows it
            _log.warning("bus: %s: %d messages wait, the oldest are dropped", self._name, self._limit)
        self._lost += 1

    def _work(self) -> None:
        while (parcel := self._next()) is not None:
            parcel.settle(self._handle(parcel))
        self._on_end(self)

    def _next(self) -> Parcel | None:
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._is_stopped.is_set())
            return self._inbox.popleft() if self._inbox else None

    def _handle(self, parcel: Parcel) -> Outcome:
        message = decode(parcel.body)
        if message is None:
            return "dropped"
        try:
            self._handler(message)
        except Exception:
            _log.exception("bus: %s: the handler failed on %s", self._name, type(message).__name__)
            return self._after_failure(parcel)
        return "done"

    def _after_failure(self, parcel: Parcel) -> Outcome:
        if parcel.redeliveries is None:
            return "dropped"
        if parcel.redeliveries >= REDELIVERIES:
            tries = parcel.redeliveries + 1
            _log.error("bus: %s: dropped after %d tries: %r", self._name, tries, parcel.body[:_SAMPLE])
            return "dropped"
        self._is_stopped.wait(_FIRST_PAUSE_SECONDS * 2**parcel.redeliveries)
        return "again"


def stop_all(couriers: list[Courier], seconds: float) -> None:
    """All at once, and no longer than this for those that are in a handler."""
    for courier in couriers:
        courier.tell_to_stop()
    deadline = time.monotonic() + seconds
    for courier in couriers:
        courier.join(max(0.0, deadline - time.monotonic()))
