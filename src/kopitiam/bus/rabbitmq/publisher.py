"""Publishing with publisher confirms. Everything here runs on the I/O thread."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from kopitiam.bus.rabbitmq.errors import Completion, describe, is_channel_closed_by_broker

_TRANSIENT, _PERSISTENT = 1, 2


@dataclass(frozen=True)
class OutgoingMessage:
    routing_key: str
    body: bytes
    completion: Completion = field(default_factory=Completion)


class Publisher:
    """Publishes to one exchange or queue, on its own channel, so that a channel error affects no other.

    Many messages may await their confirms at once. When the connection is lost, unconfirmed messages are
    published again on the next one, as long as their senders wait.
    """

    def __init__(self, exchange: str, declare: Callable[[Channel], object], is_kept: bool = False) -> None:
        """`is_kept`: messages are persistent and must reach a queue."""
        self._exchange = exchange
        self._declare = declare
        self._is_kept = is_kept
        self._connection: Any = None
        self._channel: Any = None
        self._is_ready = False
        self._waiting: deque[OutgoingMessage] = deque()
        self._unconfirmed: dict[int, OutgoingMessage] = {}
        self._returned: set[int] = set()
        self._last_tag = 0

    def publish(self, message: OutgoingMessage) -> None:
        self._waiting.append(message)
        self._publish_waiting()

    def on_connected(self, connection: Any) -> None:
        self._connection = connection
        self._publish_waiting()

    def on_closing(self) -> None:
        """Publish nothing more; messages in flight may still be confirmed."""
        self._connection = None

    def on_disconnected(self) -> None:
        self._connection = None
        self._reset_channel()

    def fail(self, reason: str) -> None:
        for message in (*self._unconfirmed.values(), *self._waiting):
            message.completion.settle(reason)
        self._unconfirmed.clear()
        self._waiting.clear()

    def _publish_waiting(self) -> None:
        if self._connection is None or not self._connection.is_open or not self._waiting:
            return
        if self._channel is None:
            self._channel = self._connection.channel(on_open_callback=self._on_opened)
            self._channel.add_on_close_callback(self._on_closed)
        while self._waiting and self._is_ready and self._channel.is_open:
            message = self._waiting.popleft()
            if not message.completion.is_abandoned:
                self._transmit(message)

    def _transmit(self, message: OutgoingMessage) -> None:
        self._last_tag += 1
        self._unconfirmed[self._last_tag] = message
        properties = BasicProperties(
            content_type="application/json",
            delivery_mode=_PERSISTENT if self._is_kept else _TRANSIENT,
            message_id=str(self._last_tag),
        )
        self._channel.basic_publish(
            self._exchange, message.routing_key, message.body, properties, mandatory=self._is_kept
        )

    def _on_opened(self, channel: Channel) -> None:
        if channel is self._channel:
            self._declare(channel)
            channel.add_on_return_callback(self._on_returned)
            channel.confirm_delivery(partial(self._on_confirmed, channel), partial(self._on_ready, channel))

    def _on_ready(self, channel: Channel, _: Any) -> None:
        if channel is self._channel:
            self._is_ready = True
            self._publish_waiting()

    def _on_returned(self, channel: Channel, _: Any, properties: BasicProperties, _body: bytes) -> None:
        if channel is self._channel:
            self._returned.add(int(properties.message_id))

    def _on_confirmed(self, channel: Channel, frame: Any) -> None:
        if channel is not self._channel:
            return
        last = frame.method.delivery_tag
        tags = [tag for tag in self._unconfirmed if tag <= last] if frame.method.multiple else [last]
        for tag in tags:
            message = self._unconfirmed.pop(tag)
            if isinstance(frame.method, Basic.Nack):
                message.completion.settle(
                    f"bus: {message.routing_key}: refused by the broker; the queue may be full"
                )
            elif tag in self._returned:
                self._returned.remove(tag)
                self._declare(channel)  # the queue was deleted
                self._waiting.appendleft(message)
            else:
                message.completion.settle()
        self._publish_waiting()

    def _on_closed(self, channel: Channel, error: Exception) -> None:
        if channel is not self._channel:
            return
        if is_channel_closed_by_broker(error):
            self.fail(f"bus: {describe(error)}")
        self._reset_channel()

    def _reset_channel(self) -> None:
        self._channel = None
        self._is_ready = False
        self._last_tag = 0
        self._returned.clear()
        self._waiting.extendleft(reversed(self._unconfirmed.values()))
        self._unconfirmed.clear()
