"""What nodes may rely on, whichever bus carries their messages.

A bus is a group of channels. A *queue* gives each message to one of its consumers, and keeps it while
there is none. A *topic* gives it to every subscriber whose pattern matches at that moment (`*` stands for
one word, `#` for any number). A *broadcast* reaches every listener. Messages of one sender to one channel
arrive in order; after trouble some may come twice, and all but those in a queue may be lost.

Handlers are called one message at a time for each subscription, on a thread of the bus. What a handler
raises is logged; a message of a queue is then given out again, a few times, with pauses. A message that
cannot be read is logged and dropped. All methods may be called from any thread, handlers included.
"""

from collections.abc import Callable
from typing import Protocol

from kopitiam.contracts.messages import Message

MAX_NAME_BYTES = 200  # AMQP takes 255, and an adapter puts a prefix before it


def check_name(name: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    if not 0 < len(name.encode()) <= max_bytes:
        raise ValueError(f"want 1 to {max_bytes} bytes as a name on the bus, not {name[:50]!r}")
    return name


def is_match(pattern: str, topic: str) -> bool:
    """`*` stands for exactly one word, `#` for any number of them, none included."""
    words = topic.split(".")
    reached = {0}  # how many words the pattern may have used up so far
    for part in pattern.split("."):
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached


Handler = Callable[[Message], None]


class Subscription(Protocol):
    def cancel(self) -> None:
        """No handler is called after this returns. A call under way is waited for, though not for ever,
        and not if this is part of it."""


class BusPort(Protocol):
    def send(self, queue: str, message: Message) -> None:
        """Kept by the bus when it returns. `BusUnavailable` if that cannot be had within the timeout, or
        the queue is full; the message may have been kept all the same."""

    def publish(self, topic: str, message: Message) -> None:
        """`BusUnavailable` if the bus cannot be reached within the timeout; nobody listening is fine."""

    def broadcast(self, message: Message) -> None:
        """As `publish`, to every listener."""

    def consume(self, queue: str, handler: Handler) -> Subscription:
        """In effect when it returns, `BusUnavailable` if that cannot be had within the timeout. After
        trouble it comes back by itself, as the other two do."""

    def subscribe(self, pattern: str, handler: Handler) -> Subscription: ...

    def listen(self, handler: Handler) -> Subscription:
        """Broadcasts."""

    def check(self) -> None:
        """`BusUnavailable` if messages cannot be sent now."""

    def close(self) -> None:
        """Handlers are not called again. Whoever is still sending gets `BusUnavailable`. Once is enough,
        twice does no harm."""
