"""What messages are sent to, as the broker knows it. Declaring one twice does no harm."""

import uuid
from dataclasses import dataclass

from pika.channel import Channel

from kopitiam.bus.delivery import LIMIT

QUEUE = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 5,  # a message on which nodes die is not given out for ever
    "x-max-length": LIMIT,
    "x-overflow": "reject-publish",  # what is kept is never dropped for what is new
}
_SUBSCRIBER = {"x-max-length": LIMIT}  # here the oldest go


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
        """A queue of one subscription, under a new name each time: after a cut the broker may not know
        yet that the old one is not needed."""
        queue = f"{self.name}.{uuid.uuid4().hex}"
        self.declare(channel)
        channel.queue_declare(queue, exclusive=True, auto_delete=True, arguments=_SUBSCRIBER)
        channel.queue_bind(queue, self.name, pattern)
        return queue
