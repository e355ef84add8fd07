"""Encoding of messages, and their delivery to handlers: the same on every bus.

Messages are JSON, checked against the schema on arrival. Each subscription has its own thread, so that a slow
handler delays no other subscription.
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

MAX_WAITING = 100_000  # messages waiting in a queue or for a subscriber
MAX_REDELIVERIES = 3  # of a queued message whose handler fails
_FIRST_PAUSE_SECONDS = 0.1  # before a redelivery; doubles each time
_CANCEL_SECONDS = 5.0  # for a handler call in progress
_SAMPLE = 200  # bytes of a dropped message to log
_log = logging.getLogger(__name__)

Outcome = Literal["done", "again", "dropped", "untouched"]
MAX_BYTES = 1 << 20
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


@dataclass(frozen=True)
class Delivery:
    body: bytes
    settle: Callable[[Outcome], None] = lambda _: None  # called at most once, on any thread
    redeliveries: int | None = None  # so far; None if it is never redelivered


class HandlerThread(Subscription):
    """The thread of one subscription: calls its handler with deliveries, in their order."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        on_end: Callable[["HandlerThread"], None],
        limit: int = MAX_WAITING,
    ) -> None:
        """`on_end` is called after the last handler call has returned."""
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
        """Enqueue; a full inbox drops its oldest. False if cancelled: the caller keeps the delivery."""
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
            unhandled = list(self._inbox)
            self._inbox.clear()
            self._changed.notify()
        for delivery in unhandled:
            delivery.settle("untouched")

    def join(self, seconds: float) -> None:
        """Wait for the thread to end. A no-op on that thread itself, where it would deadlock."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _count_loss(self) -> None:
        if self._lost % self._limit == 0:  # log the first, then once per `limit`
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
    """Stop all of them, and wait at most `seconds` in all for running handlers."""
    for handler_thread in handler_threads:
        handler_thread.request_stop()
    deadline = time.monotonic() + seconds
    for handler_thread in handler_threads:
        handler_thread.join(max(0.0, deadline - time.monotonic()))


def encode(message: Message) -> bytes:
    """Raises `ValueError` for a message larger than receivers accept."""
    data = _encoder.encode(message)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{type(message).__name__} has {len(data):,} bytes; {MAX_BYTES:,} are allowed")
    return data


def decode(data: bytes) -> Message | None:
    """Returns None, and logs a warning, for anything that is not a message of this version."""
    if len(data) > MAX_BYTES:
        flaw = f"{len(data):,} bytes; at most {MAX_BYTES:,} are allowed"
    else:
        try:
            return _decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            flaw = str(error)
    _log.warning("bus: dropped what is not a message (%s): %r", flaw[:_SAMPLE], data[:_SAMPLE])
    return None
