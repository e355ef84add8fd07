"""The state of a monitor while it leads: node liveness, the node records in the registry, and the
coordinator. It is rebuilt from the registry after every election, and all its writes carry the leader's
epoch.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.messages import Heartbeat, NodeKind, NodeRecord
from kopitiam.registry.records import Fence, Lease
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.supervision.liveness import UNREACHABLE, Decision, Liveness
from kopitiam.supervision.membership import VERSION
from kopitiam.supervision.service_watch import ServiceWatch

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_MAX_LEASE_READS = 20  # between two liveness checks, for heartbeats of unknown processes
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MonitorContext:
    """Everything a monitor needs to run."""

    node_fence: Fence  # the monitor's own lease, as a node of the fleet
    roster: Callable[[], NodesSection]  # nodes may be added while the fleet runs; monitors keep their ids
    pace: MonitorSection
    registry: "Registry"
    bus: BusPort
    revive: Callable[[str], None]
    services: ServiceWatch

    @property
    def name(self) -> str:
        return self.node_fence.name

    @property
    def beating_nodes(self) -> dict[str, NodeKind]:
        """The nodes that send heartbeats: all but the services."""
        return {name: kind for name, kind in self.roster().kinds.items() if kind != "service"}


class Leadership:
    """Node liveness and the coordinator of one epoch, from election to `end`."""

    def __init__(self, context: MonitorContext, fence: Fence, now: float) -> None:
        """`now`, here and below, is monotonic time of this process."""
        self.fence = fence
        self._context = context
        self._registry_offset = self._registry_time() - now  # records carry the registry's time
        self._leases: dict[str, Lease] = {}
        self._versions = {context.name: VERSION}  # by node
        self._lease_reads_left = _MAX_LEASE_READS
        self._trusted_until = now + 2 * context.pace.timeout_seconds
        self.liveness = Liveness(
            context.beating_nodes,
            timeout_seconds=context.pace.timeout_seconds,
            revive_limit=context.pace.revive_limit,
            pause_seconds=max(5.0, 3 * context.pace.heartbeat_seconds),
        )
        self.liveness.tick(now)
        self._reported: dict[str, NodeRecord] = {}
        self._stop_records: dict[str, NodeRecord] = {}  # written by stopping nodes; each is handled once
        self._previous = self._previous_records()
        for node in self._previous.values():
            if node.state == "stopped":
                self.liveness.on_stopped(node.name, node.epoch)
            elif node.state != "alive" and _is_given_up(node.alarm):  # an alive node reports its own alarm
                self.liveness.give_up(node.name, node.alarm or "")
        self._are_gateways_alive = threading.Event()
        self.coordinator = Coordinator(
            context.registry, context.bus, fence, are_gateways_alive=self._are_gateways_alive.is_set
        )
        self.coordinator.start()

    def on_heartbeat(self, beat: Heartbeat, now: float) -> list[Decision]:
        if not self._is_backed_by_lease(beat, now):
            return []
        alarm = beat.alarm or self._other_version(beat)
        return self.liveness.on_heartbeat(
            beat.node, beat.kind, beat.epoch, beat.pid, beat.url, now, alarm, beat.host
        )

    def _other_version(self, beat: Heartbeat) -> str | None:
        """Name a node whose version is not that of most nodes; if two are equally common, the leader's is
        right."""
        self._versions[beat.node] = beat.version or "unknown"
        counts = Counter(self._versions.values())
        usual = max(counts, key=lambda version: (counts[version], version == VERSION))
        version = self._versions[beat.node]
        return None if version == usual else f"runs version {version} on {beat.host}, and the others {usual}"

    def read_stopped_nodes(self, now: float) -> None:
        """Called on STOPPED: stopping nodes write their record first. The message alone stops nothing."""
        self._handle_stop_records({node.name: node for node in self._context.registry.nodes()}, now)

    def _is_backed_by_lease(self, beat: Heartbeat, now: float) -> bool:
        """Whether a current lease backs the heartbeat. A node renews its lease with every heartbeat; if it
        cannot reach the registry, heartbeats alone count for three timeouts."""
        lease = self._leases.get(beat.node)
        if lease is None or lease.epoch != beat.epoch:
            self._read_leases(now)
            lease = self._leases.get(beat.node)
        if lease is None or lease.epoch != beat.epoch or lease.is_released:
            return False
        return lease.overdue_seconds < 2 * self._context.pace.timeout_seconds or now < self._trusted_until

    def _read_leases(self, now: float) -> None:
        """Bounded between two liveness checks, whatever messages are forged. After a registry outage all
        leases have expired, so heartbeats alone count until nodes can renew them."""
        if self._lease_reads_left <= 0:
            return
        self._lease_reads_left -= 1
        try:
            self._leases = self._context.registry.leases()
        except Unavailable as error:
            self._trusted_until = now + 3 * self._context.pace.timeout_seconds
            _log.info("leading: %s", error)
            return
        for node in self.liveness.nodes(now):
            if (lease := self._leases.get(node.name)) is None:
                continue
            if lease.epoch < node.epoch:
                self.liveness.drop_epoch(node.name, lease.epoch)  # the registry was restored
            if not lease.is_released:
                self.liveness.on_taken_over(node.name, lease.epoch, now)
            elif node.pid is not None:
                self.liveness.on_stopped(node.name, lease.epoch)  # only a stopping node releases its lease

    def check_liveness(self, now: float) -> list[Decision]:
        self._lease_reads_left = _MAX_LEASE_READS
        self._read_leases(now)
        decisions = self.liveness.tick(now)
        self._check_gateways(now)
        return decisions

    def on_bus_lost(self) -> None:
        """Stop declaring clients lost: without heartbeats the state of the gateways is unknown."""
        self._are_gateways_alive.clear()

    def report(self, now: float, about: str | None = None) -> None:
        """Write changed node records to the registry, where gateways read them.

        The record of `about` is always written: that proves the epoch. Raises `StaleEpoch`.
        """
        self.liveness.expect(self._context.beating_nodes, now)
        records = {node.name: node for node in self._context.registry.nodes()}
        self._handle_stop_records(records, now)
        for removed in self._reported.keys() - self._context.roster().kinds:
            self._context.registry.delete_node(removed, self.fence)
            del self._reported[removed]
        for observed in (*self.liveness.nodes(now), *self._context.services.nodes(now)):
            node = replace(observed, since=observed.since + self._registry_offset)
            known = self._with_previous(node)
            record = replace(known, pid=known.pid or None, leader=node.name == self._context.name)
            if node.name == about or record != records.get(node.name):
                self._context.registry.report_node(record, self.fence)
            self._reported[node.name] = record

    def is_dead(self, name: str, now: float) -> bool:
        return any(node.name == name and node.state == "dead" for node in self.liveness.nodes(now))

    def end(self) -> None:
        self.coordinator.stop()

    def _check_gateways(self, now: float) -> None:
        """Clients renew leases through gateways: wait for dead and starting ones, but not for those that
        stopped or have an alarm, unless no other is alive."""
        gateways = [node for node in self.liveness.nodes(now) if node.kind == "gateway"]
        is_awaited = any(node.state in ("dead", "starting") and node.alarm is None for node in gateways)
        if any(node.state == "alive" for node in gateways) and not is_awaited:
            self._are_gateways_alive.set()
        else:
            self._are_gateways_alive.clear()

    def _handle_stop_records(self, records: Mapping[str, NodeRecord], now: float) -> None:
        """A stopping node writes its record before it publishes STOPPED. Each record is handled once, and
        later heartbeats override it. A replaced process that stops late has no effect."""
        epochs = {node.name: node.epoch for node in self.liveness.nodes(now)}
        for node in records.values():
            known = (self._reported.get(node.name), self._stop_records.get(node.name))
            if node.state != "stopped" or node in known:
                continue
            self._stop_records[node.name] = node
            if epochs.get(node.name, math.inf) <= node.epoch:
                self.liveness.on_stopped(node.name, node.epoch)

    def _registry_time(self) -> float:
        try:
            return self._context.registry.now()
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return time.time()  # for display only

    def _with_previous(self, node: NodeRecord) -> NodeRecord:
        """A node without a heartbeat since the election keeps the record of the previous leader until it is
        declared dead."""
        before = self._previous.get(node.name)
        if before is None or node.epoch > before.epoch:
            return node
        if node.pid is None:
            last = self._reported.get(node.name, before)
            if (last.state, node.state) == ("alive", "starting"):
                return last
            node = replace(node, pid=before.pid, url=before.url, epoch=before.epoch, host=before.host)
        is_same = (before.state, before.epoch) == (node.state, node.epoch)
        return replace(node, since=before.since) if is_same else node

    def _previous_records(self) -> dict[str, NodeRecord]:
        """The node records of the previous leader."""
        try:
            return {node.name: node for node in self._context.registry.nodes()}
        except Unavailable as error:
            _log.warning("leading: %s", error)
            return {}


def _is_given_up(alarm: str | None) -> bool:
    return alarm is not None and not alarm.startswith(UNREACHABLE)
