"""The bus port on RabbitMQ: a queue is a durable quorum queue; topics and broadcasts have one exchange each,
and every subscriber to them an exclusive, auto-deleted queue.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pika.channel import Channel

from kopitiam.bus.delivery import MAX_WAITING, HandlerThread, encode, stop_all
from kopitiam.bus.port import BusPort, Handler, Subscription, check_name
from kopitiam.bus.rabbitmq.connection import CLOSED, BrokerConnection, parse_address
from kopitiam.bus.rabbitmq.consumer import Consumer
from kopitiam.bus.rabbitmq.publisher import OutgoingMessage, Publisher
from kopitiam.contracts.errors import BusUnavailable
from kopitiam.contracts.messages import Message

QUEUE = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 5,  # stops redelivery of a message that crashes its consumers
    "x-max-length": MAX_WAITING,
    "x-overflow": "reject-publish",  # never drop stored messages for new ones
}
_SUBSCRIBER = {"x-max-length": MAX_WAITING}  # drops the oldest
_PREFETCH = 100  # for subscribers; a queue consumer prefetches one message
_CLOSE_SECONDS = 3.0  # for running handlers


@dataclass(frozen=True)
class Queue:
    name: str

    def declare(self, channel: Channel) -> str:
        channel.queue_declare(self.name, durable=True, arguments=QUEUE)
        return self.name


@dataclass(frozen=True)
class Exchange:
    name: str
    kind: str

    def declare(self, channel: Channel) -> None:
        channel.exchange_declare(self.name, self.kind, durable=True)

    def declare_subscriber(self, pattern: str, channel: Channel) -> str:
        """Declare the exclusive queue of one subscription. Its name is new each time: after a connection loss
        the broker may still hold the old one."""
        queue = f"{self.name}.{uuid.uuid4().hex}"
        self.declare(channel)
        channel.queue_declare(queue, exclusive=True, auto_delete=True, arguments=_SUBSCRIBER)
        channel.queue_bind(queue, self.name, pattern)
        return queue


class RabbitBus(BusPort):
    def __init__(
        self,
        url: str,
        *,
        prefix: str = "kopitiam",
        timeout_seconds: float = 5.0,
        connect_seconds: float = 9.0,
    ) -> None:
        """Connect, or raise `BusUnavailable`. Fleets with different prefixes can share a broker."""
        self._prefix = check_name(prefix, max_bytes=40)
        self._timeout_seconds = timeout_seconds
        self._topics = Exchange(f"{prefix}.topic", "topic")
        self._broadcasts = Exchange(f"{prefix}.broadcast", "fanout")
        self._topic_publisher = Publisher(self._topics.name, self._topics.declare)
        self._broadcast_publisher = Publisher(self._broadcasts.name, self._broadcasts.declare)
        self._check_publisher = Publisher("", lambda _: None)
        self._queue_publishers: dict[str, Publisher] = {}
        self._consumers: dict[HandlerThread, Consumer] = {}
        self._lock = threading.Lock()
        self._connection = BrokerConnection(parse_address(url))
        for publisher in (self._topic_publisher, self._broadcast_publisher, self._check_publisher):
            self._connection.post(partial(self._connection.add, publisher))
        self._connection.start()
        try:
            self._connection.first_connection.wait(connect_seconds, lambda: self._connection.failure)
        except BusUnavailable:
            self._connection.close()
            raise

    def send(self, queue: str, message: Message) -> None:
        name = self._queue_name(queue)
        self._publish(self._queue_publisher(name), name, encode(message))

    def publish(self, topic: str, message: Message) -> None:
        self._publish(self._topic_publisher, check_name(topic), encode(message))

    def broadcast(self, message: Message) -> None:
        self._publish(self._broadcast_publisher, "", encode(message))

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
        """Await the confirm of a message without a queue: an open connection alone may not work."""
        if not self._connection.is_connected:
            raise BusUnavailable(self._failure_reason())
        self._publish(self._check_publisher, f"{self._prefix}.nobody", b"")

    def close(self) -> None:
        with self._lock:
            handler_threads = list(self._consumers)
        stop_all(handler_threads, _CLOSE_SECONDS)
        self._connection.close()

    def _publish(self, publisher: Publisher, routing_key: str, body: bytes) -> None:
        message = OutgoingMessage(routing_key, body)
        self._connection.post(partial(publisher.publish, message))
        if self._connection.is_closed:
            message.completion.settle(CLOSED)
        message.completion.wait(self._timeout_seconds, self._failure_reason)

    def _subscribe(
        self,
        name: str,
        handler: Handler,
        declare: Callable[[Channel], str],
        prefetch: int,
        is_queue: bool = False,
    ) -> Subscription:
        handler_thread = HandlerThread(name, handler, self._remove_consumer)
        consumer = Consumer(self._connection, handler_thread, declare, prefetch, is_queue)
        with self._lock:
            self._consumers[handler_thread] = consumer
        self._connection.post(partial(self._connection.add, consumer))
        if self._connection.is_closed:
            consumer.ready.settle(CLOSED)
        try:
            consumer.ready.wait(self._timeout_seconds, self._failure_reason)
        except BusUnavailable:
            handler_thread.cancel()
            raise
        return handler_thread

    def _remove_consumer(self, handler_thread: HandlerThread) -> None:
        with self._lock:
            consumer = self._consumers.pop(handler_thread)
        self._connection.post(partial(self._connection.remove, consumer))

    def _failure_reason(self) -> str:
        if self._connection.is_closed:
            return CLOSED
        if not self._connection.is_connected:
            return self._connection.failure
        return f"bus: {self._connection.address}: no confirmation within {self._timeout_seconds:g} s"

    def _queue_name(self, queue: str) -> str:
        return f"{self._prefix}.{check_name(queue)}"

    def _queue_publisher(self, name: str) -> Publisher:
        with self._lock:
            if name not in self._queue_publishers:
                self._queue_publishers[name] = publisher = Publisher("", Queue(name).declare, is_kept=True)
                self._connection.post(partial(self._connection.add, publisher))
            return self._queue_publishers[name]
