"""The port of the bus: queues, topics and broadcasts, and the names of channels.

A *queue* delivers each message to one of its consumers, and stores it until one is there. A *topic* delivers
it to every current subscriber whose pattern matches (`*` is one word, `#` any number). A *broadcast* reaches
every listener. Messages from one sender to one channel arrive in order. After a connection loss messages may
be delivered twice; those not in a queue may be lost.

Each subscription calls its handler one message at a time, on a thread of the bus. An exception of a handler
is logged; a queue then redelivers the message a few times, with backoff. A message that cannot be decoded is
logged and dropped. All methods may be called from any thread, also from a handler.
"""

from collections.abc import Callable
from typing import Protocol

from kopitiam.contracts.messages import Message

MAX_NAME_BYTES = 200  # AMQP allows 255; the adapter adds a prefix
Handler = Callable[[Message], None]


class Subscription(Protocol):
    def cancel(self) -> None:
        """Stop calling the handler. Waits a bounded time for a call in progress, unless called from it."""


class BusPort(Protocol):
    def send(self, queue: str, message: Message) -> None:
        """Return once the queue has stored the message.

        Raises `BusUnavailable` on a timeout or a full queue; the message may have been stored nevertheless.
        """

    def publish(self, topic: str, message: Message) -> None:
        """Publish to all current subscribers; none is fine. Raises `BusUnavailable` on a timeout."""

    def broadcast(self, message: Message) -> None:
        """As `publish`, to every listener."""

    def consume(self, queue: str, handler: Handler) -> Subscription:
        """Consume a queue; active on return. Raises `BusUnavailable` on a timeout.

        This and the two below resume by themselves after a connection loss.
        """

    def subscribe(self, pattern: str, handler: Handler) -> Subscription: ...

    def listen(self, handler: Handler) -> Subscription:
        """Receive broadcasts."""

    def check(self) -> None:
        """Raise `BusUnavailable` if messages cannot be sent now."""

    def close(self) -> None:
        """Stop all handlers; pending sends raise `BusUnavailable`. Idempotent."""


def check_name(name: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Return `name`, or raise `ValueError` if it is empty or too long."""
    if not 0 < len(name.encode()) <= max_bytes:
        raise ValueError(f"expected 1 to {max_bytes} bytes as a name on the bus, not {name[:50]!r}")
    return name


def is_match(pattern: str, topic: str) -> bool:
    """Match as AMQP does: `*` stands for exactly one word, `#` for zero or more."""
    words = topic.split(".")
    reached = {0}  # numbers of words that the pattern so far can match
    for part in pattern.split("."):
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached
