"""Watches the services that the fleet depends on, by probing each in its own protocol.

Every monitor watches, not only the leader: without the bus there are no heartbeats, and without the registry
no election. Starting a running service is a no-op, so revival needs no epoch; the monitors have different
timeouts, so that usually only one of them acts.

A service that was stopped on purpose is not revived: on this machine it has no process record, and the
registry says so to monitors of other machines. Each start and stop has its own epoch there.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import NodeRecord
from kopitiam.supervision.liveness import Alarm, Decision, Liveness, Recovered, Revive
from kopitiam.supervision.reviver import handle_revived

_PROBES = 3  # failures in a row before a service is dead
_log = logging.getLogger(__name__)


class ServiceLocation(NamedTuple):
    """The process of a service, if it runs on this machine, its address without credentials, its machine."""

    pid: int | None = None
    url: str | None = None
    host: str | None = None


class ServiceWatch:
    def __init__(
        self,
        probes: Callable[[], Mapping[str, Callable[[], bool]]],
        find: Callable[[str], ServiceLocation | None],
        revive: Callable[[str], None],
        reported: Callable[[], Iterable[NodeRecord]] = tuple,
        *,
        every_seconds: float,
        patience_seconds: float,
        revive_limit: int,
    ) -> None:
        """`patience_seconds` is added to the time of the failed probes. `probes` is called each time, as
        services may change; `find` returns None for a service of this machine that was stopped on purpose;
        `reported` returns the records in the registry, or raises `Unavailable`."""
        self._reported = reported
        self._epochs: dict[str, int] = {}
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
        records = self._read_records()
        alive = {name for name, answers in probes.items() if answers()}
        decisions: list[Decision] = []
        with self._lock:
            self._liveness.expect(dict.fromkeys(probes, "service"), now)
            for name, location in locations.items():
                self._follow(name, records.get(name), now)
                if location is None:
                    self._liveness.on_stopped(name)
                elif name in alive:
                    epoch, pid = self._epochs.get(name, 0), location.pid or 0
                    decisions += self._liveness.on_heartbeat(
                        name, "service", epoch, pid, location.url, now, host=location.host
                    )
            decisions += self._liveness.tick(now)
        for decision in decisions:
            self._carry_out(decision)

    def _read_records(self) -> dict[str, NodeRecord]:
        try:
            return {node.name: node for node in self._reported()}
        except Unavailable as error:
            _log.info("watching the services: %s", error)
            return {}

    def _follow(self, name: str, record: NodeRecord | None, now: float) -> None:
        """Take over a start or stop that the registry has under a later epoch than the last one."""
        if record is None or record.epoch <= self._epochs.get(name, 0):
            return
        self._epochs[name] = record.epoch
        if record.state == "stopped":
            self._liveness.on_stopped(name, record.epoch)
        else:
            self._liveness.on_taken_over(name, record.epoch, now)

    def on_revived(self, name: str, now: float, failure: str | None = None) -> None:
        with self._lock:
            handle_revived(self._liveness, name, now, failure)

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
