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

import msgspec

from kopitiam.bus.port import Handler, Subscription
from kopitiam.contracts.messages import Message

MAX_WAITING = 100_000  # messages that may pile up where nobody takes them
MAX_REDELIVERIES = 3  # of a message in a queue, when its handler fails
_FIRST_PAUSE_SECONDS = 0.1  # before it is given out again; doubles each time
_CANCEL_SECONDS = 5.0  # for a call that is under way
_SAMPLE = 200  # bytes of a dropped message that are logged
_log = logging.getLogger(__name__)

Outcome = Literal["done", "again", "dropped", "untouched"]


@dataclass(frozen=True)
class Delivery:
    body: bytes
    settle: Callable[[Outcome], None] = lambda _: None  # called at most once, on any thread
    redeliveries: int | None = None  # so far; None if it is never given out again


class HandlerThread(Subscription):
    """Takes parcels from any thread, and calls the handler with them in their order."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        on_end: Callable[["HandlerThread"], None],
        limit: int = MAX_WAITING,
    ) -> None:
        """`on_end` is called when the handler has been called for the last time, and has returned."""
        self._name = name
        self._handler = handler
        self._on_end = on_end
        self._limit = limit
        self._inbox: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._is_stopped = threading.Event()
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name=f"bus {name}", daemon=True)
        self._thread.start()

    def put(self, delivery: Delivery) -> bool:
        """False if it is cancelled, and the delivery somebody else's. A full inbox loses its oldest."""
        with self._changed:
            if self._is_stopped.is_set():
                return False
            if len(self._inbox) >= self._limit:
                self._inbox.popleft()
                self._count_loss()
            self._inbox.append(delivery)
            self._changed.notify()
            return True

    def cancel(self) -> None:
        self.request_stop()
        self.join(_CANCEL_SECONDS)

    def request_stop(self) -> None:
        with self._changed:
            self._is_stopped.set()
            left = list(self._inbox)
            self._inbox.clear()
            self._changed.notify()
        for delivery in left:
            delivery.settle("untouched")

    def join(self, seconds: float) -> None:
        """Not from the handler, which would wait for itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _count_loss(self) -> None:
        if self._lost % self._limit == 0:  # a line for the first, and for each full inbox that follows it
            _log.warning("bus: %s: %d messages wait, the oldest are dropped", self._name, self._limit)
        self._lost += 1

    def _work(self) -> None:
        while (delivery := self._next()) is not None:
            delivery.settle(self._handle(delivery))
        self._on_end(self)

    def _next(self) -> Delivery | None:
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._is_stopped.is_set())
            return self._inbox.popleft() if self._inbox else None

    def _handle(self, delivery: Delivery) -> Outcome:
        message = decode(delivery.body)
        if message is None:
            return "dropped"
        try:
            self._handler(message)
        except Exception:
            _log.exception("bus: %s: the handler failed on %s", self._name, type(message).__name__)
            return self._after_failure(delivery)
        return "done"

    def _after_failure(self, delivery: Delivery) -> Outcome:
        if delivery.redeliveries is None:
            return "dropped"
        if delivery.redeliveries >= MAX_REDELIVERIES:
            tries = delivery.redeliveries + 1
            _log.error("bus: %s: dropped after %d tries: %r", self._name, tries, delivery.body[:_SAMPLE])
            return "dropped"
        self._is_stopped.wait(_FIRST_PAUSE_SECONDS * 2**delivery.redeliveries)
        return "again"


def stop_all(handler_threads: list[HandlerThread], seconds: float) -> None:
    """All at once, and no longer than this for those that are in a handler."""
    for handler_thread in handler_threads:
        handler_thread.request_stop()
    deadline = time.monotonic() + seconds
    for handler_thread in handler_threads:
        handler_thread.join(max(0.0, deadline - time.monotonic()))


MAX_BYTES = 1 << 20
_CODEC_SAMPLE = 200  # as much of it is logged
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """`ValueError` for one that no receiver would take."""
    data = _encoder.encode(message)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{type(message).__name__} of {len(data):,} bytes, where {MAX_BYTES:,} are allowed")
    return data


def decode(data: bytes) -> Message | None:
    """None for anything but a message of this version."""
    if len(data) > MAX_BYTES:
        flaw = f"{len(data):,} bytes, where {MAX_BYTES:,} are allowed"
    else:
        try:
            return _decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            flaw = str(error)
    _log.warning("bus: dropped what is not a message (%s): %r", flaw[:_CODEC_SAMPLE], data[:_CODEC_SAMPLE])
    return None
