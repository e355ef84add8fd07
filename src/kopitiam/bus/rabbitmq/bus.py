"""The port in RabbitMQ's terms: a queue is a durable quorum queue, topics and broadcasts go through an
exchange each, and every subscriber to these has an exclusive queue that comes and goes with it.
"""

import threading
from collections.abc import Callable
from functools import partial

from pika.channel import Channel

from kopitiam.bus.codec import encode
from kopitiam.bus.delivery import Courier, stop_all
from kopitiam.bus.port import BusPort, Handler, Subscription
from kopitiam.bus.rabbitmq.address import parse_address
from kopitiam.bus.rabbitmq.inlet import Inlet
from kopitiam.bus.rabbitmq.link import CLOSED, Link
from kopitiam.bus.rabbitmq.outlet import Letter, Outlet
from kopitiam.bus.rabbitmq.places import Exchange, Queue
from kopitiam.bus.topics import check_name
from kopitiam.contracts.errors import BusUnavailable
from kopitiam.contracts.messages import Message

_PREFETCH = 100  # for a subscriber; the consumer of a queue has one message in hand
_CLOSE_SECONDS = 3.0  # for the handlers that are running


class RabbitBus(BusPort):
    def __init__(
        self,
        url: str,
        *,
        prefix: str = "kopitiam",
        timeout_seconds: float = 5.0,
        connect_seconds: float = 9.0,
    ) -> None:
        """Connected when it returns. Fleets with different prefixes share a broker without meeting."""
        self._prefix = check_name(prefix, max_bytes=40)
        self._timeout_seconds = timeout_seconds
        self._topics = Exchange(f"{prefix}.topic", "topic")
        self._broadcasts = Exchange(f"{prefix}.broadcast", "fanout")
        self._topic_outlet = Outlet(self._topics.name, self._topics.declare)
        self._broadcast_outlet = Outlet(self._broadcasts.name, self._broadcasts.declare)
        self._check_outlet = Outlet("", lambda _: None)
        self._queue_outlets: dict[str, Outlet] = {}
        self._inlets: dict[Courier, Inlet] = {}
        self._lock = threading.Lock()
        self._link = Link(parse_address(url))
        for outlet in (self._topic_outlet, self._broadcast_outlet, self._check_outlet):
            self._link.post(partial(self._link.add, outlet))
        self._link.start()
        try:
            self._link.first_connection.wait(connect_seconds, lambda: self._link.trouble)
        except BusUnavailable:
            self._link.close()
            raise

    def send(self, queue: str, message: Message) -> None:
        name = self._queue_name(queue)
        self._publish(self._queue_outlet(name), name, encode(message))

    def publish(self, topic: str, message: Message) -> None:
        self._publish(self._topic_outlet, check_name(topic), encode(message))

    def broadcast(self, message: Message) -> None:
        self._publish(self._broadcast_outlet, "", encode(message))

    def consume(self, queue: str, handler: Handler) -> Subscription:
        place = Queue(self._queue_name(queue))
        return self._subscribe(queue, handler, place.declare, prefetch=1, is_queue=True)

    def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        declare = partial(self._topics.declare_subscriber, check_name(pattern))
        return self._subscribe(pattern, handler, declare, _PREFETCH)

    def listen(self, handler: Handler) -> Subscription:
        declare = partial(self._broadcasts.declare_subscriber, "")
        return self._subscribe("broadcast", handler, declare, _PREFETCH)

    def check(self) -> None:
        """A message to nobody, confirmed: unlike an open connection, this shows that the broker works."""
        if not self._link.is_connected:
            raise BusUnavailable(self._why_not())
        self._publish(self._check_outlet, f"{self._prefix}.nobody", b"")

    def close(self) -> None:
        with self._lock:
            couriers = list(self._inlets)
        stop_all(couriers, _CLOSE_SECONDS)
        self._link.close()

    def _publish(self, outlet: Outlet, routing_key: str, body: bytes) -> None:
        letter = Letter(routing_key, body)
        self._link.post(partial(outlet.publish, letter))
        if self._link.is_over:
            letter.receipt.settle(CLOSED)
        letter.receipt.wait(self._timeout_seconds, self._why_not)

    def _subscribe(
        self,
        name: str,
        handler: Handler,
        declare: Callable[[Channel], str],
        prefetch: int,
        is_queue: bool = False,
    ) -> Subscription:
        courier = Courier(name, handler, self._leave)
        inlet = Inlet(self._link, courier, declare, prefetch, is_queue)
        with self._lock:
            self._inlets[courier] = inlet
        self._link.post(partial(self._link.add, inlet))
        if self._link.is_over:
            inlet.ready.settle(CLOSED)
        try:
            inlet.ready.wait(self._timeout_seconds, self._why_not)
        except BusUnavailable:
            courier.cancel()
            raise
        return courier

    def _leave(self, courier: Courier) -> None:
        with self._lock:
            inlet = self._inlets.pop(courier)
        self._link.post(partial(self._link.remove, inlet))

    def _why_not(self) -> str:
        if self._link.is_over:
            return CLOSED
        if not self._link.is_connected:
            return self._link.trouble
        return f"bus: {self._link.address}: no confirmation within {self._timeout_seconds:g} s"

    def _queue_name(self, queue: str) -> str:
        return f"{self._prefix}.{check_name(queue)}"

    def _queue_outlet(self, name: str) -> Outlet:
        with self._lock:
            if name not in self._queue_outlets:
                self._queue_outlets[name] = outlet = Outlet("", Queue(name).declare, is_kept=True)
                self._link.post(partial(self._link.add, outlet))
            return self._queue_outlets[name]
