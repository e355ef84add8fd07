"""The bus of a single process: what RabbitMQ promises, as long as the process lives.

Messages are encoded and decoded for real, so that nothing works here that would fail on a wire. All
nodes of the process share one object.
"""

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from kopitiam.bus.codec import encode
from kopitiam.bus.delivery import LIMIT, Courier, Outcome, Parcel, stop_all
from kopitiam.bus.port import BusPort, Handler, Subscription
from kopitiam.bus.topics import check_name, is_match
from kopitiam.contracts.errors import BusUnavailable
from kopitiam.contracts.messages import Message

_CLOSE_SECONDS = 3.0  # for the handlers that are running


@dataclass(frozen=True)
class _Kept:
    body: bytes
    redeliveries: int = 0


@dataclass(eq=False)
class _Queue:
    """A consumer has one message in hand at most; those that have none take turns."""

    waiting: deque[_Kept] = field(default_factory=deque)
    free: deque[Courier] = field(default_factory=deque)


class MemoryBus(BusPort):
    def __init__(self, limit: int = LIMIT) -> None:
        """`limit`: how many messages may pile up in a queue or for a subscriber."""
        self._limit = limit
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._patterns: dict[Courier, str] = {}  # of those that subscribe
        self._listeners: set[Courier] = set()
        self._couriers: set[Courier] = set()
        self._is_closed = False

    def send(self, queue: str, message: Message) -> None:
        body = encode(message)
        with self._lock:
            self._check_open()
            place = self._queue(queue)
            if len(place.waiting) >= self._limit:
                raise BusUnavailable(f"bus: {queue}: the queue is full")
            place.waiting.append(_Kept(body))
            self._hand_out(place)

    def publish(self, topic: str, message: Message) -> None:
        check_name(topic)
        parcel = Parcel(encode(message))
        with self._lock:  # all subscribers see the same order
            self._check_open()
            for courier, pattern in self._patterns.items():
                if is_match(pattern, topic):
                    courier.put(parcel)

    def broadcast(self, message: Message) -> None:
        parcel = Parcel(encode(message))
        with self._lock:
            self._check_open()
            for courier in self._listeners:
                courier.put(parcel)

    def consume(self, queue: str, handler: Handler) -> Subscription:
        check_name(queue)
        with self._lock:
            courier = self._courier(queue, handler)
            place = self._queue(queue)
            place.free.append(courier)
            self._hand_out(place)
        return courier

    def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        check_name(pattern)
        with self._lock:
            courier = self._courier(pattern, handler)
            self._patterns[courier] = pattern
        return courier

    def listen(self, handler: Handler) -> Subscription:
        with self._lock:
            courier = self._courier("broadcast", handler)
            self._listeners.add(courier)
        return courier

    def check(self) -> None:
        self._check_open()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            couriers = list(self._couriers)
        stop_all(couriers, _CLOSE_SECONDS)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusUnavailable("bus: it is closed")

    def _courier(self, name: str, handler: Handler) -> Courier:
        self._check_open()
        courier = Courier(name, handler, self._forget, self._limit)
        self._couriers.add(courier)
        return courier

    def _forget(self, courier: Courier) -> None:
        with self._lock:
            self._couriers.discard(courier)
            self._patterns.pop(courier, None)
            self._listeners.discard(courier)
            for queue in self._queues.values():
                if courier in queue.free:
                    queue.free.remove(courier)

    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(check_name(name), _Queue())

    def _hand_out(self, queue: _Queue) -> None:
        while queue.waiting and queue.free:
            courier, kept = queue.free.popleft(), queue.waiting[0]
            settle = partial(self._settle, queue, courier, kept)
            if courier.put(Parcel(kept.body, settle, kept.redeliveries)):
                queue.waiting.popleft()

    def _settle(self, queue: _Queue, courier: Courier, kept: _Kept, outcome: Outcome) -> None:
        with self._lock:
            if outcome == "again":
                queue.waiting.appendleft(_Kept(kept.body, kept.redeliveries + 1))
            elif outcome == "untouched":
                queue.waiting.appendleft(kept)
            queue.free.append(courier)
            self._hand_out(queue)
