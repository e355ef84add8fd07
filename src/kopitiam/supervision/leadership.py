"""What a monitor has while it leads: who lives, what the registry shows of it, and the barrier. Rebuilt from
the registry every time, and all of it written under one epoch.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import Heartbeat, NodeKind, NodeRecord
from kopitiam.registry.records import Fence, Lease
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.supervision.liveness import Decision, Liveness
from kopitiam.supervision.service_watch import ServiceWatch

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_MOST_READS = 20  # of all leases, for heartbeats of lives that are not known
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MonitorContext:
    """What a monitor is given by whoever composes it."""

    place: Fence  # its own, as a node of the fleet
    roster: Callable[[], NodesSection]  # nodes may be added while the fleet runs; monitors keep their ids
    pace: MonitorSection
    registry: "Registry"
    bus: BusPort
    revive: Callable[[str], None]
    services: ServiceWatch

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def heard(self) -> dict[str, NodeKind]:
        """The nodes that have heartbeats."""
        return {name: kind for name, kind in self.roster().kinds.items() if kind != "service"}


class Leadership:
    def __init__(self, watch: MonitorContext, fence: Fence, now: float) -> None:
        """`now`, here and below, is a clock of this process that nobody can set."""
        self.fence = fence
        self._watch = watch
        self._shown_later = self._registry_time() - now  # what is shown is the registry's time
        self._leases: dict[str, Lease] = {}
        self._reads_left = _MOST_READS
        self._believed_until = now + 2 * watch.pace.timeout_seconds
        self.liveness = Liveness(
            watch.heard,
            timeout_seconds=watch.pace.timeout_seconds,
            revive_limit=watch.pace.revive_limit,
            pause_seconds=max(5.0, 3 * watch.pace.heartbeat_seconds),
        )
        self.liveness.tick(now)
        self._reported: dict[str, NodeRecord] = {}
        self._farewells: dict[str, NodeRecord] = {}  # records that nodes wrote as they left, taken once each
        self._before = self._known_before()
        for node in self._before.values():
            if node.state == "stopped":
                self.liveness.on_stopped(node.name, node.epoch)
            elif node.alarm is not None and node.state != "alive":  # a living node has told its trouble
                self.liveness.give_up(node.name, node.alarm)
        self._are_gateways_alive = threading.Event()
        self.coordinator = Coordinator(
            watch.registry, watch.bus, fence, are_gateways_alive=self._are_gateways_alive.is_set
        )
        self.coordinator.start()

    def hear(self, beat: Heartbeat, now: float) -> list[Decision]:
        if not self._is_borne_out(beat, now):
            return []
        return self.liveness.on_heartbeat(
            beat.node, beat.kind, beat.epoch, beat.pid, beat.url, now, beat.trouble
        )

    def read_stopped_nodes(self, now: float) -> None:
        """After STOPPED came: nodes that leave write it down first. The message alone stops nothing."""
        self._hear_farewells({node.name: node for node in self._watch.registry.nodes()}, now)

    def _is_borne_out(self, beat: Heartbeat, now: float) -> bool:
        """Whether the registry knows this life, and has heard of it. A node renews its lease as often as it
        sends heartbeats, but may lose the registry for a while: its word alone counts for three timeouts."""
        lease = self._leases.get(beat.node)
        if lease is None or lease.epoch != beat.epoch:
            self._read_leases(now)
            lease = self._leases.get(beat.node)
        if lease is None or lease.epoch != beat.epoch or lease.is_released:
            return False
        return lease.overdue_seconds < 2 * self._watch.pace.timeout_seconds or now < self._believed_until

    def _read_leases(self, now: float) -> None:
        """At most so often between two judgements, whatever messages are made up. After the registry was away
        all leases have run out, and there is time to renew them."""
        if self._reads_left <= 0:
            return
        self._reads_left -= 1
        try:
            self._leases = self._watch.registry.leases()
        except Unavailable as error:
            self._believed_until = now + 3 * self._watch.pace.timeout_seconds
            _log.info("leading: %s", error)
            return
        for node in self.liveness.nodes(now):
            if (lease := self._leases.get(node.name)) is None:
                continue
            if lease.epoch < node.epoch:
                self.liveness.forget_epoch(node.name, lease.epoch)  # the registry was restored
            if not lease.is_released:
                self.liveness.on_taken_over(node.name, lease.epoch, now)
            elif node.pid is not None:
                self.liveness.on_stopped(node.name, lease.epoch)  # only a node that leaves releases its lease

    def judge(self, now: float) -> list[Decision]:
        self._reads_left = _MOST_READS
        self._read_leases(now)
        decisions = self.liveness.tick(now)
        self._look_for_gateways(now)
        return decisions

    def on_bus_lost(self) -> None:
        """Nobody is judged: neither a node nor a client, whose gateway may be dead."""
        self._are_gateways_alive.clear()

    def report(self, now: float, about: str | None = None) -> None:
        """What the registry does not show yet, for every gateway to show it. What it says `about` a node is
        written in any case: thereby the epoch is proved."""
        self.liveness.expect(self._watch.heard, now)
        shown = {node.name: node for node in self._watch.registry.nodes()}
        self._hear_farewells(shown, now)
        for gone in self._reported.keys() - self._watch.roster().kinds:
            self._watch.registry.forget_node(gone, self.fence)
            del self._reported[gone]
        for seen in (*self.liveness.nodes(now), *self._watch.services.nodes(now)):
            node = replace(seen, since=seen.since + self._shown_later)
            known = self._as_known(node)
            record = replace(known, pid=known.pid or None, leader=node.name == self._watch.name)
            if node.name == about or record != shown.get(node.name):
                self._watch.registry.report_node(record, self.fence)
            self._reported[node.name] = record

    def is_dead(self, name: str, now: float) -> bool:
        return any(node.name == name and node.state == "dead" for node in self.liveness.nodes(now))

    def end(self) -> None:
        self.coordinator.stop()

    def _look_for_gateways(self, now: float) -> None:
        """A client is heard through the gateways alone. One that was given up, or left, is waited for no
        more, unless there is no other."""
        gateways = [node for node in self.liveness.nodes(now) if node.kind == "gateway"]
        is_awaited = any(node.state in ("dead", "starting") and node.alarm is None for node in gateways)
        if any(node.state == "alive" for node in gateways) and not is_awaited:
            self._are_gateways_alive.set()
        else:
            self._are_gateways_alive.clear()

    def _hear_farewells(self, shown: Mapping[str, NodeRecord], now: float) -> None:
        """A node that leaves writes that to the registry before it publishes it. A record counts once, and
        later heartbeats outweigh it. A life that was replaced and leaves late stops nobody."""
        epochs = {node.name: node.epoch for node in self.liveness.nodes(now)}
        for node in shown.values():
            known = (self._reported.get(node.name), self._farewells.get(node.name))
            if node.state != "stopped" or node in known:
                continue
            self._farewells[node.name] = node
            if epochs.get(node.name, math.inf) <= node.epoch:
                self.liveness.on_stopped(node.name, node.epoch)

    def _registry_time(self) -> float:
        try:
            return self._watch.registry.now()
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return time.time()  # only shown

    def _as_known(self, node: NodeRecord) -> NodeRecord:
        """One not heard of since we lead is in the life that the leader before knew, and as well as then
        until it is declared dead."""
        before = self._before.get(node.name)
        if before is None or node.epoch > before.epoch:
            return node
        if node.pid is None:
            last = self._reported.get(node.name, before)
            if (last.state, node.state) == ("alive", "starting"):
                return last
            node = replace(node, pid=before.pid, url=before.url, epoch=before.epoch)
        is_same = (before.state, before.epoch) == (node.state, node.epoch)
        return replace(node, since=before.since) if is_same else node

    def _known_before(self) -> dict[str, NodeRecord]:
        """What the leader before knew: who left or was given up, and since when the others live."""
        try:
            return {node.name: node for node in self._watch.registry.nodes()}
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return {}
