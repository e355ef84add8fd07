"""What a handler of a test has been given, and a way to wait for it."""

import threading

from kopitiam.contracts.messages import Election, Message

PATIENCE_SECONDS = 60.0


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
