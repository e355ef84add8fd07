"""Publishing, with the broker's confirmation of each message. All of it runs on the I/O thread."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from kopitiam.bus.rabbitmq.receipt import Receipt
from kopitiam.bus.rabbitmq.troubles import is_by_broker, reason

_TRANSIENT, _PERSISTENT = 1, 2


@dataclass(frozen=True)
class Letter:
    routing_key: str
    body: bytes
    receipt: Receipt = field(default_factory=Receipt)


class Outlet:
    """One exchange or queue, on a channel of its own, so that trouble with one is not another's.

    Confirmations are awaited all at once, not one by one. What is not confirmed when the connection is
    lost is published again on the next one, as long as its sender waits for it.
    """

    def __init__(self, exchange: str, declare: Callable[[Channel], object], is_kept: bool = False) -> None:
        """`is_kept`: for a queue, where a message has to arrive and to be on the disk."""
        self._exchange = exchange
        self._declare = declare
        self._is_kept = is_kept
        self._connection: Any = None
        self._channel: Any = None
        self._is_ready = False
        self._waiting: deque[Letter] = deque()
        self._unconfirmed: dict[int, Letter] = {}
        self._returned: set[int] = set()
        self._last_tag = 0

    def publish(self, letter: Letter) -> None:
        self._waiting.append(letter)
        self._work()

    def connected(self, connection: Any) -> None:
        self._connection = connection
        self._work()

    def wind_down(self) -> None:
        """Nothing new is begun; what is on its way may still be confirmed."""
        self._connection = None

    def disconnected(self) -> None:
        self._connection = None
        self._forget_channel()

    def give_up(self, trouble: str) -> None:
        for letter in (*self._unconfirmed.values(), *self._waiting):
            letter.receipt.settle(trouble)
        self._unconfirmed.clear()
        self._waiting.clear()

    def _work(self) -> None:
        if self._connection is None or not self._connection.is_open or not self._waiting:
            return
        if self._channel is None:
            self._channel = self._connection.channel(on_open_callback=self._on_opened)
            self._channel.add_on_close_callback(self._on_closed)
        while self._waiting and self._is_ready and self._channel.is_open:
            letter = self._waiting.popleft()
            if not letter.receipt.is_abandoned:
                self._put_on_the_wire(letter)

    def _put_on_the_wire(self, letter: Letter) -> None:
        self._last_tag += 1
        self._unconfirmed[self._last_tag] = letter
        properties = BasicProperties(
            content_type="application/json",
            delivery_mode=_PERSISTENT if self._is_kept else _TRANSIENT,
            message_id=str(self._last_tag),
        )
        self._channel.basic_publish(
            self._exchange, letter.routing_key, letter.body, properties, mandatory=self._is_kept
        )

    def _on_opened(self, channel: Channel) -> None:
        if channel is self._channel:
            self._declare(channel)
            channel.add_on_return_callback(self._on_returned)
            channel.confirm_delivery(partial(self._on_confirmed, channel), partial(self._on_ready, channel))

    def _on_ready(self, channel: Channel, _: Any) -> None:
        if channel is self._channel:
            self._is_ready = True
            self._work()

    def _on_returned(self, channel: Channel, _: Any, properties: BasicProperties, _body: bytes) -> None:
        if channel is self._channel:
            self._returned.add(int(properties.message_id))

    def _on_confirmed(self, channel: Channel, frame: Any) -> None:
        if channel is not self._channel:
            return
        last = frame.method.delivery_tag
        tags = [tag for tag in self._unconfirmed if tag <= last] if frame.method.multiple else [last]
        for tag in tags:
            letter = self._unconfirmed.pop(tag)
            if isinstance(frame.method, Basic.Nack):
                letter.receipt.settle(
                    f"bus: {letter.routing_key}: refused by the broker; the queue may be full"
                )
            elif tag in self._returned:
                self._returned.remove(tag)
                self._declare(channel)  # somebody has deleted the queue
                self._waiting.appendleft(letter)
            else:
                letter.receipt.settle()
        self._work()

    def _on_closed(self, channel: Channel, error: Exception) -> None:
        if channel is not self._channel:
            return
        if is_by_broker(error):
            self.give_up(f"bus: {reason(error)}")
        self._forget_channel()

    def _forget_channel(self) -> None:
        self._channel = None
        self._is_ready = False
        self._last_tag = 0
        self._returned.clear()
        self._waiting.extendleft(reversed(self._unconfirmed.values()))
        self._unconfirmed.clear()
