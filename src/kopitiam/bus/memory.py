"""The bus of a single process: the same guarantees as RabbitMQ, without durability.

Messages are encoded and decoded for real, so that what fails on RabbitMQ also fails here. All nodes of the
process share one object.
"""

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from kopitiam.bus.delivery import MAX_WAITING, Delivery, HandlerThread, Outcome, encode, stop_all
from kopitiam.bus.port import BusPort, Handler, Subscription, check_name, is_match
from kopitiam.contracts.errors import BusUnavailable
from kopitiam.contracts.messages import Message

_CLOSE_SECONDS = 3.0  # for running handlers


@dataclass(frozen=True)
class _QueuedMessage:
    body: bytes
    redeliveries: int = 0


@dataclass(eq=False)
class _Queue:
    """Each consumer handles one message at a time; idle consumers take turns."""

    waiting: deque[_QueuedMessage] = field(default_factory=deque)
    free: deque[HandlerThread] = field(default_factory=deque)


class MemoryBus(BusPort):
    def __init__(self, limit: int = MAX_WAITING) -> None:
        """`limit`: the most messages that may wait in a queue or for a subscriber."""
        self._limit = limit
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._patterns: dict[HandlerThread, str] = {}  # of topic subscribers
        self._listeners: set[HandlerThread] = set()
        self._handler_threads: set[HandlerThread] = set()
        self._is_closed = False

    def send(self, queue: str, message: Message) -> None:
        body = encode(message)
        with self._lock:
            self._check_open()
            place = self._queue(queue)
            if len(place.waiting) >= self._limit:
                raise BusUnavailable(f"bus: {queue}: the queue is full")
            place.waiting.append(_QueuedMessage(body))
            self._hand_out(place)

    def publish(self, topic: str, message: Message) -> None:
        check_name(topic)
        delivery = Delivery(encode(message))
        with self._lock:  # gives all subscribers the same order
            self._check_open()
            for handler_thread, pattern in self._patterns.items():
                if is_match(pattern, topic):
                    handler_thread.put(delivery)

    def broadcast(self, message: Message) -> None:
        delivery = Delivery(encode(message))
        with self._lock:
            self._check_open()
            for handler_thread in self._listeners:
                handler_thread.put(delivery)

    def consume(self, queue: str, handler: Handler) -> Subscription:
        check_name(queue)
        with self._lock:
            handler_thread = self._handler_thread(queue, handler)
            place = self._queue(queue)
            place.free.append(handler_thread)
            self._hand_out(place)
        return handler_thread

    def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        check_name(pattern)
        with self._lock:
            handler_thread = self._handler_thread(pattern, handler)
            self._patterns[handler_thread] = pattern
        return handler_thread

    def listen(self, handler: Handler) -> Subscription:
        with self._lock:
            handler_thread = self._handler_thread("broadcast", handler)
            self._listeners.add(handler_thread)
        return handler_thread

    def check(self) -> None:
        self._check_open()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            handler_threads = list(self._handler_threads)
        stop_all(handler_threads, _CLOSE_SECONDS)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusUnavailable("bus: it is closed")

    def _handler_thread(self, name: str, handler: Handler) -> HandlerThread:
        self._check_open()
        handler_thread = HandlerThread(name, handler, self._remove, self._limit)
        self._handler_threads.add(handler_thread)
        return handler_thread

    def _remove(self, handler_thread: HandlerThread) -> None:
        with self._lock:
            self._handler_threads.discard(handler_thread)
            self._patterns.pop(handler_thread, None)
            self._listeners.discard(handler_thread)
            for queue in self._queues.values():
                if handler_thread in queue.free:
                    queue.free.remove(handler_thread)

    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(check_name(name), _Queue())

    def _hand_out(self, queue: _Queue) -> None:
        while queue.waiting and queue.free:
            handler_thread, kept = queue.free.popleft(), queue.waiting[0]
            settle = partial(self._settle, queue, handler_thread, kept)
            if handler_thread.put(Delivery(kept.body, settle, kept.redeliveries)):
                queue.waiting.popleft()

    def _settle(
        self, queue: _Queue, handler_thread: HandlerThread, kept: _QueuedMessage, outcome: Outcome
    ) -> None:
        with self._lock:
            if outcome == "again":
                queue.waiting.appendleft(_QueuedMessage(kept.body, kept.redeliveries + 1))
            elif outcome == "untouched":
                queue.waiting.appendleft(kept)
            queue.free.append(handler_thread)
            self._hand_out(queue)
