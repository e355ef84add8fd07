"""A message handler for tests that records messages and waits for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kopitiam.bus.delivery import HandlerThread
from kopitiam.contracts.messages import Election, Message
from waiting import PATIENCE_SECONDS


def numbered_message(number: int) -> Message:
    return Election(sender=number)


class Inbox:
    """A handler that records the numbers of the messages that it receives, in order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.numbers.append(message.sender)
            self._changed.notify_all()

    def wait_for(self, *numbers: int) -> list[int]:
        """Wait until all these numbers have arrived; return all numbers that arrived."""
        with self._changed:
            self._changed.wait_for(lambda: set(numbers) <= set(self.numbers), PATIENCE_SECONDS)
            missing = set(numbers) - set(self.numbers)
            assert not missing, f"missing: {sorted(missing)[:5]}; last received: {self.numbers[-5:]}"
            return list(self.numbers)


@contextmanager
def after_stop_request(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` after a subscription was requested to stop, before it waits for its handler."""
    request_stop = HandlerThread.request_stop

    def stop_and_act(handler_thread: HandlerThread) -> None:
        request_stop(handler_thread)
        act()

    with patch.object(HandlerThread, "request_stop", stop_and_act):
        yield
