"""Watches the services that the fleet depends on, by probing each in its own protocol.

Every monitor watches, not only the leader: without the bus there are no heartbeats, and without the registry
no election. Starting a running service is a no-op, so revival needs no epoch; the monitors have different
timeouts, so that usually only one of them acts.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kopitiam.contracts.messages import NodeRecord
from kopitiam.supervision.liveness import Alarm, Decision, Liveness, Recovered, Revive

_PROBES = 3  # failures in a row before a service is dead
_log = logging.getLogger(__name__)


class ServiceLocation(NamedTuple):
    """The process of a service, if it runs on this machine, and its address without credentials."""

    pid: int | None = None
    url: str | None = None


class ServiceWatch:
    def __init__(
        self,
        probes: Callable[[], Mapping[str, Callable[[], bool]]],
        find: Callable[[str], ServiceLocation | None],
        revive: Callable[[str], None],
        *,
        every_seconds: float,
        patience_seconds: float,
        revive_limit: int,
    ) -> None:
        """`patience_seconds` is added to the time of the failed probes. `probes` is called each time, as
        services may change; `find` returns None for a service that was stopped on purpose."""
        self._probes = probes
        self._find = find
        self._revive = revive
        self._every = every_seconds
        self._liveness = Liveness(
            {},
            timeout_seconds=_PROBES * every_seconds + patience_seconds,
            revive_limit=revive_limit,
            pause_seconds=60.0,  # probes may be slow
        )
        self._lock = threading.Lock()

    def run(self, stopping: threading.Event) -> None:
        """Probe until `stopping` is set. An unexpected error is logged and does not end the watch."""
        while not stopping.wait(self._every):
            try:
                self.probe_all(time.monotonic())
            except Exception:
                _log.exception("watching the services")

    def probe_all(self, now: float) -> None:
        probes = self._probes()
        locations = {name: self._find(name) for name in probes}
        alive = {name for name, answers in probes.items() if answers()}
        decisions: list[Decision] = []
        with self._lock:
            self._liveness.expect(dict.fromkeys(probes, "service"), now)
            for name, location in locations.items():
                if location is None:
                    self._liveness.on_stopped(name)
                elif name in alive:
                    pid, url = location.pid or 0, location.url
                    decisions += self._liveness.on_heartbeat(name, "service", 0, pid, url, now)
            decisions += self._liveness.tick(now)
        for decision in decisions:
            self._carry_out(decision)

    def on_revived(self, name: str, now: float) -> None:
        with self._lock:
            self._liveness.on_revived(name, now)

    def nodes(self, now: float) -> list[NodeRecord]:
        with self._lock:
            return self._liveness.nodes(now)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Revive(node, attempt):
                _log.warning("%s does not answer: reviving it, attempt %d", node, attempt)
                self._revive(node)
            case Alarm(node, reason):
                _log.error("ALARM: %s: %s", node, reason)
            case Recovered(node):
                _log.warning("%s answers again", node)
