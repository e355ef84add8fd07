"""The services that the fleet itself stands on, watched without them: by asking each whether it answers.

Every monitor watches, whoever leads: without the bus nobody hears a heartbeat, and without the registry
nobody can be elected. Starting a service that runs is no harm, so no epoch is needed; the monitors differ
in patience, so that as a rule one of them does it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from kopitiam.contracts.nodes import NodeRecord
from kopitiam.supervision.liveness import Alarm, Liveness, Recovered, Revive

_PROBES = 3  # in a row without an answer
_log = logging.getLogger(__name__)


class ServiceWatch:
    def __init__(
        self,
        probes: Callable[[], Mapping[str, Callable[[], bool]]],
        revive: Callable[[str], None],
        *,
        every_seconds: float,
        patience_seconds: float,
        revive_limit: int,
    ) -> None:
        """`patience_seconds` come on top of the time that a few probes take. Which services there are may
        change."""
        self._probes = probes
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
        while not stopping.wait(self._every):
            self.look(time.time())

    def look(self, now: float) -> None:
        probes = self._probes()
        alive = [name for name, answers in probes.items() if answers()]
        with self._lock:
            self._liveness.expect(dict.fromkeys(probes, "service"), now)
            decisions = [
                decision
                for name in alive
                for decision in self._liveness.on_heartbeat(name, "service", 0, 0, None, now)
            ]
            decisions += self._liveness.tick(now)
        for decision in decisions:
            self._carry_out(decision)

    def on_revived(self, name: str, now: float) -> None:
        with self._lock:
            self._liveness.on_revived(name, now)

    def nodes(self, now: float) -> list[NodeRecord]:
        with self._lock:
            return self._liveness.nodes(now)

    def _carry_out(self, decision: Revive | Alarm | Recovered) -> None:
        match decision:
            case Revive(node, attempt):
                _log.warning("%s does not answer: reviving it, attempt %d", node, attempt)
                self._revive(node)
            case Alarm(node, reason):
                _log.error("ALARM: %s: %s", node, reason)
            case Recovered(node):
                _log.warning("%s answers again", node)
