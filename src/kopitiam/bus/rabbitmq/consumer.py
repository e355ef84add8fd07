"""Consuming: a subscription that reopens by itself when its channel or the connection is lost."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from kopitiam.bus.delivery import Delivery, HandlerThread, Outcome
from kopitiam.bus.rabbitmq.errors import Completion, describe, is_channel_closed

_REOPEN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class IoThread(Protocol):
    """Runs calls on the thread that owns the channels."""

    def post(self, call: Callable[[], object]) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> None: ...


class Consumer:
    """One subscription. Handlers run on their own thread; the channel is used on the I/O thread only."""

    def __init__(
        self,
        io: IoThread,
        handler_thread: HandlerThread,
        declare: Callable[[Channel], str],
        prefetch: int,
        is_queue: bool = False,
    ) -> None:
        """`declare` declares the queue and returns its name."""
        self._io = io
        self._handler_thread = handler_thread
        self._declare = declare
        self._prefetch = prefetch
        self._is_queue = is_queue
        self._connection: Any = None
        self._channel: Any = None
        self.ready = Completion()
        self.is_cancelled = False

    def on_connected(self, connection: Any) -> None:
        self._connection = connection
        self._open()

    def on_closing(self) -> None:
        """Open no new channel."""
        self._connection = None

    def on_disconnected(self) -> None:
        self._connection = self._channel = None

    def fail(self, reason: str) -> None:
        self.ready.settle(reason)
        self._handler_thread.request_stop()

    def close(self) -> None:
        """Close the channel: the broker requeues unacknowledged messages."""
        self.is_cancelled = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _open(self) -> None:
        is_needed = self._channel is None and not self.is_cancelled
        if is_needed and self._connection is not None and self._connection.is_open:
            self._channel = self._connection.channel(on_open_callback=self._on_opened)
            self._channel.add_on_close_callback(self._on_closed)

    def _on_opened(self, channel: Channel) -> None:
        if self.is_cancelled or channel is not self._channel:
            channel.close()
            return
        channel.add_on_cancel_callback(lambda _: channel.close())  # its queue was deleted: reopen
        channel.basic_qos(prefetch_count=self._prefetch)
        queue = self._declare(channel)
        channel.basic_consume(queue, self._on_message, callback=lambda _: self.ready.settle())

    def _on_message(
        self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        count = (properties.headers or {}).get("x-delivery-count", 0) if self._is_queue else None
        settle = partial(self._settle, channel, method.delivery_tag)
        self._handler_thread.put(Delivery(body, settle, count))

    def _settle(self, channel: Channel, tag: int, outcome: Outcome) -> None:
        if outcome != "untouched":
            self._io.post(partial(_acknowledge, channel, tag, outcome))

    def _on_closed(self, channel: Channel, error: Exception) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if self.is_cancelled or self._connection is None or not is_channel_closed(error):
            return
        if not self.ready.is_settled:
            self.is_cancelled = True
            self.ready.settle(f"bus: {describe(error)}")
            return
        _log.warning("bus: a subscription was closed (%s); reopening it", describe(error))
        self._io.call_later(_REOPEN_SECONDS, self._open)


def _acknowledge(channel: Channel, tag: int, outcome: Outcome) -> None:
    if not (channel.is_open and channel.connection.is_open):
        return  # the broker has requeued the message already
    if outcome == "done":
        channel.basic_ack(tag)
    else:
        channel.basic_nack(tag, requeue=outcome == "again")
