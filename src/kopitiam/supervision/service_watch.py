"""The services that the fleet itself stands on, watched without them: by asking each whether it answers.

Every monitor watches, whoever leads: without the bus nobody hears a heartbeat, and without the registry
nobody can be elected. Starting a service that runs is no harm, so no epoch is needed; the monitors differ
in patience, so that as a rule one of them does it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kopitiam.contracts.messages import NodeRecord
from kopitiam.supervision.liveness import Alarm, Decision, Liveness, Recovered, Revive

_PROBES = 3  # in a row without an answer
_log = logging.getLogger(__name__)


class ServiceLocation(NamedTuple):
    """Where a service is: its process, if it runs here, and its address without credentials."""

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
        """`patience_seconds` come on top of the time that a few probes take. Which services there are may
        change; one that was stopped on purpose is not to be found."""
        self._probes = probes
        self._find = find
        self._revive = revive
        self._every = every_seconds
        self._liveness = Liveness(
            {},
            timeout_seconds=_PROBES * every_seconds + patience_seconds,
            revive_limit=revive_limit,
            pause_seconds=60.0,  # a probe may take its time
        )
        self._lock = threading.Lock()

    def run(self, stopping: threading.Event) -> None:
        """Whatever happens: without this watch nobody brings a service back."""
        while not stopping.wait(self._every):
            try:
                self.look(time.monotonic())
            except Exception:
                _log.exception("watching the services")

    def look(self, now: float) -> None:
        probes = self._probes()
        found = {name: self._find(name) for name in probes}
        alive = {name for name, answers in probes.items() if answers()}
        decisions: list[Decision] = []
        with self._lock:
            self._liveness.expect(dict.fromkeys(probes, "service"), now)
            for name, where in found.items():
                if where is None:
                    self._liveness.on_stopped(name)
                elif name in alive:
                    pid, url = where.pid or 0, where.url
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
