"""What a handler of a test has been given, and a way to wait for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kopitiam.bus.delivery import HandlerThread
from kopitiam.contracts.messages import Election, Message
from waiting import PATIENCE_SECONDS


def letter(number: int) -> Message:
    return Election(sender=number)


class Inbox:
    """A handler that keeps the numbers of the letters it gets, in their order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.numbers.append(message.sender)
            self._changed.notify_all()

    def wait_for(self, *numbers: int) -> list[int]:
        """All that came until each of these had come."""
        with self._changed:
            self._changed.wait_for(lambda: set(numbers) <= set(self.numbers), PATIENCE_SECONDS)
            missing = set(numbers) - set(self.numbers)
            assert not missing, f"not come: {sorted(missing)[:5]}; come: {self.numbers[-5:]}"
            return list(self.numbers)


@contextmanager
def once_told_to_stop(act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` when a subscription has been told to stop, before it waits for its handler."""
    request_stop = HandlerThread.request_stop

    def tell_and_act(courier: HandlerThread) -> None:
        request_stop(courier)
        act()

    with patch.object(HandlerThread, "request_stop", tell_and_act):
        yield
