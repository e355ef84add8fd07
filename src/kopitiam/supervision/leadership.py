"""What a monitor has while it leads: who lives, what the registry shows of it, and the barrier. Rebuilt from
the registry every time, and all of it written under one epoch.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import Heartbeat, NodeKind
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.supervision.coordinator import Coordination
from kopitiam.supervision.liveness import Decision, Liveness
from kopitiam.supervision.services import ServiceWatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """What a monitor is given by whoever composes it."""

    place: Fence  # its own, as a node of the fleet
    roster: Callable[[], NodesSection]  # nodes may be added while the fleet runs; monitors keep their ids
    pace: MonitorSection
    registry: RegistryPort
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
    def __init__(self, watch: Watch, fence: Fence, now: float) -> None:
        self.fence = fence
        self._watch = watch
        self.liveness = Liveness(
            watch.heard,
            timeout_seconds=watch.pace.timeout_seconds,
            revive_limit=watch.pace.revive_limit,
            pause_seconds=max(5.0, 3 * watch.pace.heartbeat_seconds),
        )
        self.liveness.tick(now)
        self._reported: dict[str, NodeRecord] = {}
        self._before = self._known_before()
        for node in self._before.values():
            if node.state == "stopped":
                self.liveness.on_stopped(node.name)
            elif node.alarm is not None:
                self.liveness.give_up(node.name, node.alarm)
        self._can_hear_clients = threading.Event()
        self.coordination = Coordination(
            watch.registry, watch.bus, fence, can_hear_clients=self._can_hear_clients.is_set
        )
        self.coordination.start()

    def hear(self, beat: Heartbeat, now: float) -> list[Decision]:
        return self.liveness.on_heartbeat(beat.node, beat.kind, beat.epoch, beat.pid, beat.url, now)

    def hear_farewell(self, name: str, epoch: int, now: float) -> None:
        """One that was replaced, and leaves late, takes nobody with it."""
        if any(node.name == name and node.epoch <= epoch for node in self.liveness.nodes(now)):
            self.liveness.on_stopped(name)

    def judge(self, now: float) -> list[Decision]:
        decisions = self.liveness.tick(now)
        self._look_for_gateways(now)
        return decisions

    def be_deaf(self) -> None:
        """Nobody is judged: neither a node nor a client, whose gateway may be dead."""
        self._can_hear_clients.clear()

    def report(self, now: float, about: str | None = None) -> None:
        """What the registry does not show yet, for every gateway to show it. What it says `about` a node is
        written in any case: thereby the epoch is proved."""
        self.liveness.expect(self._watch.heard, now)
        shown = {node.name: node for node in self._watch.registry.nodes()}
        self._hear_lost_farewells(shown, now)
        for gone in self._reported.keys() - self._watch.roster().kinds:
            self._watch.registry.forget_node(gone, self.fence)
            del self._reported[gone]
        for node in (*self.liveness.nodes(now), *self._watch.services.nodes(now)):
            known = self._as_known(node)
            record = replace(known, pid=known.pid or None, leader=node.name == self._watch.name)
            if node.name == about or record != shown.get(node.name):
                self._watch.registry.report_node(record, self.fence)
            self._reported[node.name] = record

    def is_dead(self, name: str, now: float) -> bool:
        return any(node.name == name and node.state == "dead" for node in self.liveness.nodes(now))

    def end(self) -> None:
        self.coordination.stop()

    def _look_for_gateways(self, now: float) -> None:
        """A client is heard through the gateways alone. One that was given up, or left, is waited for no
        more, unless there is no other."""
        gateways = [node for node in self.liveness.nodes(now) if node.kind == "gateway"]
        is_awaited = any(node.state in ("dead", "starting") and node.alarm is None for node in gateways)
        if any(node.state == "alive" for node in gateways) and not is_awaited:
            self._can_hear_clients.set()
        else:
            self._can_hear_clients.clear()

    def _hear_lost_farewells(self, shown: Mapping[str, NodeRecord], now: float) -> None:
        """Whoever leaves writes it down before it says so. What we wrote ourselves is no news: heartbeats may
        have told better since."""
        for node in shown.values():
            if node.state == "stopped" and node != self._reported.get(node.name):
                self.hear_farewell(node.name, node.epoch, now)

    def _as_known(self, node: NodeRecord) -> NodeRecord:
        """One not heard of since we lead is in the life that the leader before knew, and as well as then
        until it is declared dead."""
        before = self._before.get(node.name)
        if before is None:
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
