"""Who waits for the end of a run, told by the pipeline over the bus. The registry has it already: what is
lost here is only late.
"""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator

from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import Message, WorkerEnd, progress_topic

_log = logging.getLogger(__name__)


class Endings:
    """The bus calls on a thread of its own; whoever waits does so in an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    def listen(self, bus: BusPort) -> None:
        try:
            bus.subscribe(progress_topic("server_results", 0), self.hear)
        except Unavailable as error:
            _log.info("ends of runs are found by looking: %s", error)

    def hear(self, message: Message) -> None:
        if not isinstance(message, WorkerEnd):
            return
        with self._lock:
            waiting = list(self._waiting.get(message.run, ()))
        for loop, told in waiting:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(told.set)

    @contextlib.contextmanager
    def awaited(self, run: str) -> Iterator[asyncio.Event]:
        """An event that is set when the answers of the run are out."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting[run].add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiting[run].discard(waiter)
                if not self._waiting[run]:
                    del self._waiting[run]
