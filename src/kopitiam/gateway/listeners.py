"""Messages that a gateway receives from the bus: heartbeats of nodes, and ends of runs. Both only inform
clients; the registry has the facts, so a lost message only delays an update.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Heartbeat, Message, WorkerEnd, progress_topic

_MOST_NODES = 1_000  # a fleet has fewer; more names than that are forged
_log = logging.getLogger(__name__)


class Heartbeats:
    """Arrival times of each node's last heartbeat. For display only: no decision depends on them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._received_at: dict[str, float] = {}

    def subscribe(self, bus: BusPort) -> None:
        try:
            bus.subscribe(HEARTBEAT_TOPIC, self.on_message)
        except Unavailable as error:
            _log.info("heartbeats are not shown: %s", error)

    def on_message(self, message: Message) -> None:
        if not isinstance(message, Heartbeat):
            return
        if message.node in self._received_at or len(self._received_at) < _MOST_NODES:
            self._received_at[message.node] = self._now()

    def seconds_ago(self, node: str) -> float | None:
        """Return the age of the last heartbeat; None if none arrived. Nodes of this process send none."""
        received_at = self._received_at.get(node)
        return None if received_at is None else round(self._now() - received_at, 1)


class RunEndWaiters:
    """Wakes event loops that wait for the end of a run. The bus calls on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    def subscribe(self, bus: BusPort) -> None:
        try:
            bus.subscribe(progress_topic("server_results", 0), self.on_message)
        except Unavailable as error:
            _log.info("ends of runs are found by polling: %s", error)

    def on_message(self, message: Message) -> None:
        if not isinstance(message, WorkerEnd):
            return
        with self._lock:
            waiters = list(self._waiters.get(message.run, ()))
        for loop, ended in waiters:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(ended.set)

    @contextlib.contextmanager
    def waiting(self, run: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when the answers of the run are published."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters[run].add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiters[run].discard(waiter)
                if not self._waiters[run]:
                    del self._waiters[run]
