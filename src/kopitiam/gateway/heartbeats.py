"""When this gateway last heard of each node: for those who look at the fleet, and for no decision."""

import logging
import time
from collections.abc import Callable

from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Heartbeat, Message

_MOST_NODES = 1_000  # names; more can only be made up
_log = logging.getLogger(__name__)


class Heartbeats:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._heard: dict[str, float] = {}

    def listen(self, bus: BusPort) -> None:
        try:
            bus.subscribe(HEARTBEAT_TOPIC, self.hear)
        except Unavailable as error:
            _log.info("heartbeats are not shown: %s", error)

    def hear(self, message: Message) -> None:
        if isinstance(message, Heartbeat) and (message.node in self._heard or len(self._heard) < _MOST_NODES):
            self._heard[message.node] = self._now()

    def seconds_ago(self, node: str) -> float | None:
        """None if it has not been heard of, as the parts of one process never are."""
        at = self._heard.get(node)
        return None if at is None else round(self._now() - at, 1)
