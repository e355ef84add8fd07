"""How a thread waits for what the I/O thread does for it."""

import threading
from collections.abc import Callable

from kopitiam.contracts.errors import BusUnavailable


class Receipt:
    def __init__(self) -> None:
        self._is_settled = threading.Event()
        self._trouble: str | None = None
        self.is_abandoned = False

    @property
    def is_settled(self) -> bool:
        return self._is_settled.is_set()

    def settle(self, trouble: str | None = None) -> None:
        """The first call counts."""
        if not self.is_settled:
            self._trouble = trouble
            self._is_settled.set()

    def wait(self, seconds: float, or_else: Callable[[], str]) -> None:
        """`BusUnavailable` with the trouble there was, or with that of `or_else` when time is up."""
        if not self._is_settled.wait(seconds):
            self.is_abandoned = True
            raise BusUnavailable(or_else())
        if self._trouble is not None:
            raise BusUnavailable(self._trouble)
