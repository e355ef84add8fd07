"""The shells of the state machines: monitor, membership of a node, reviver, and service watch."""

import contextlib
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from monitor_world import BEAT, NODES, TIMEOUT, Clock, World
from sqlalchemy import update

from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import ConfigError, KopitiamError, RegistryUnavailable, Unavailable
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    Election,
    ElectionAnswer,
    Heartbeat,
    LeaderAnnouncement,
    NodeRecord,
    NodeState,
    Stopped,
)
from kopitiam.registry import Fence, Registry
from kopitiam.registry.schema import leases
from kopitiam.supervision import leadership, membership
from kopitiam.supervision.actions import LeaderAction, read_actions
from kopitiam.supervision.membership import Membership, NodeContext
from kopitiam.supervision.monitor import LEASE
from kopitiam.supervision.reviver import Reviver
from kopitiam.supervision.service_watch import ServiceLocation, ServiceWatch
from waiting import PATIENCE_SECONDS, eventually

ALL_NODES = tuple(NODES.kinds)
OTHERS = ("monitor-2", "monitor-3")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(World(tmp_path)) as world:
        yield world


# -- leadership


def test_a_single_monitor_leads(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(lambda: world.leader() == ("monitor-1", 1), ALL_NODES)
    world.pass_time(2, ALL_NODES)
    assert [node.name for node in world.nodes().values() if node.leader] == ["monitor-1"]
    assert world.holds(LEASE, 1)


def test_a_higher_monitor_takes_over_and_the_lower_one_starts_no_election(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.start("monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 2), ALL_NODES)
    world.pass_time(3, ALL_NODES)
    world.clear_received()
    world.pass_time(3 * TIMEOUT, ALL_NODES)
    assert {message.sender for message in world.received if isinstance(message, LeaderAnnouncement)} == {3}
    assert not [message for message in world.received if isinstance(message, Election)]
    assert [node.name for node in world.nodes().values() if node.leader] == ["monitor-3"]


def test_the_next_monitor_leads_after_the_leader_and_records_it_as_dead(world: World) -> None:
    world.start("monitor-2")
    world.start("monitor-3")
    epoch = world.await_leader("monitor-3", ALL_NODES)
    world.pass_time(2, ALL_NODES)
    before = world.nodes()
    world.stop("monitor-3")
    alive = tuple(name for name in ALL_NODES if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", epoch + 1), alive)
    world.pass_time_until(lambda: world.revived, alive)
    nodes = world.nodes()
    assert (nodes["monitor-3"].state, nodes["monitor-3"].pid) == ("dead", 100)
    assert [node.name for node in nodes.values() if node.leader] == ["monitor-2"]
    assert all((nodes[name].state, nodes[name].since) == ("alive", before[name].since) for name in alive)
    assert world.revived == ["monitor-3"]


def test_a_new_leader_keeps_the_records_of_nodes_before_their_first_heartbeat(world: World) -> None:
    world.registry.report_node(NodeRecord("pipeline-1", "pipeline", 7, None, "alive", 5.0, 3, leader=True))
    world.start("monitor-1")
    world.pass_time_until(world.leader, ("monitor-1",))
    world.pass_time(1, ("monitor-1",))
    assert world.nodes()["pipeline-1"] == NodeRecord("pipeline-1", "pipeline", 7, None, "alive", 5.0, 3)


def test_a_monitor_whose_lease_was_taken_over_does_not_take_the_lead(world: World) -> None:
    world.start("monitor-1")
    world.registry.take_over("monitor-1", "a new process", 1e6)
    world.pass_time_until(
        lambda: sum(isinstance(message, Election) for message in world.received) > 2, ("monitor-1",)
    )
    assert world.leader() is None
    assert world.registry.take_over_if_higher(LEASE, 1, "a new process", 10) == 1


def test_the_next_monitor_leads_before_the_timeout_when_the_leader_stops_on_purpose(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    epoch = world.await_leader("monitor-3", ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.stop("monitor-3")
    assert not world.holds(LEASE, epoch)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="monitor-3", epoch=1))
    world.pass_time(TIMEOUT / 2, tuple(name for name in ALL_NODES if name != "monitor-3"))
    assert world.leader() == ("monitor-2", epoch + 1)


def test_an_announced_epoch_that_the_registry_never_granted_does_not_block_the_election(world: World) -> None:
    world.start("monitor-1")
    world.bus.publish(ELECTION_TOPIC, LeaderAnnouncement(sender=3, epoch=99))
    world.pass_time_until(lambda: world.leader() == ("monitor-1", 1), ALL_NODES)
    world.pass_time(2, ALL_NODES)
    assert world.registry.take_over_if_higher(LEASE, 3, "another process", 1e6) == 2
    world.pass_time(2, ALL_NODES)
    world.clear_received()
    world.pass_time(TIMEOUT, ALL_NODES)
    assert not [message for message in world.received if isinstance(message, LeaderAnnouncement)]


def test_a_leader_without_its_own_heartbeats_yields_the_lead_until_they_arrive_again(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    epoch = world.await_leader("monitor-3", ALL_NODES)
    others = tuple(name for name in ALL_NODES if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", epoch + 1), others)
    world.pass_time(3 * TIMEOUT, others)
    assert world.leader() == ("monitor-2", epoch + 1)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", epoch + 2), ALL_NODES)


def test_the_leader_stays_during_a_bus_outage_of_all_nodes(world: World) -> None:
    for name in NODES.monitors:
        world.start(name)
    epoch = world.await_leader("monitor-3", ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.pass_time(5 * TIMEOUT)
    world.roster = NodesSection(services=("rabbitmq",))
    world.services.append(NodeRecord("rabbitmq", "service", None, None, "dead", 5.0, 0))
    world.pass_time(1)
    assert world.nodes()["rabbitmq"].state == "dead", (
        "it still reports services, which it probes without the bus"
    )
    world.clear_received()
    world.pass_time(2, ("gateway-1", "monitor-2"))  # heartbeats of the others arrive later
    world.pass_time(2 * TIMEOUT, ALL_NODES)
    announced = {
        (message.sender, message.epoch)
        for message in world.received
        if isinstance(message, LeaderAnnouncement)
    }
    assert announced == {(3, epoch)}
    assert world.holds(LEASE, epoch)
    assert world.revived == []


# -- decisions of the leader


def test_a_dead_node_is_revived_once_and_recorded_as_dead(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alive = tuple(name for name in ALL_NODES if name != "pipeline-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.pass_time(TIMEOUT + 2, alive)
    assert world.revived == ["pipeline-1"]
    assert list(read_actions(caplog.text)) == [LeaderAction(1, "revives", "pipeline-1")]
    assert {name: node.state for name, node in world.nodes().items()} == {
        name: "alive" if name in alive else "dead" for name in ALL_NODES
    }


def test_a_leader_with_a_stale_epoch_revives_no_node(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ("monitor-1",))
    world.pass_time(TIMEOUT - 2, ("monitor-1",))
    assert world.registry.take_over_if_higher(LEASE, 3, "another process", 1e6) == 2
    world.clear_received()
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert [message for message in world.received if isinstance(message, Election)]
    assert not [message for message in world.received if isinstance(message, LeaderAnnouncement)]
    assert world.revived == []


class SupersedingRegistry:
    """A registry in which, from the time `at`, another process takes the lead right after a renewal."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self.at = math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def renew(self, *lease: Any) -> bool:
        is_renewed = self._registry.renew(*lease)
        if self._clock() >= self.at:
            self._registry.take_over_if_higher(LEASE, 3, "another process", 1e6)
        return is_renewed


def test_a_leader_superseded_between_renewal_and_decision_revives_no_node(world: World) -> None:
    registry = SupersedingRegistry(world.registry, world.clock)
    world.start("monitor-1", registry)
    world.pass_time_until(lambda: "pipeline-1" in world.nodes(), ("monitor-1",))
    registry.at = world.nodes()["pipeline-1"].since + TIMEOUT
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert world.holds(LEASE, 2)
    assert world.revived == []
    assert {node.state for node in world.nodes().values()} <= {"starting", "alive"}


def test_a_new_leader_does_not_revive_nodes_stopped_on_purpose(world: World) -> None:
    world.registry.report_node(NodeRecord("pipeline-1", "pipeline", 7, None, "stopped", 5.0, 3))
    world.start("monitor-1")
    world.pass_time_until(lambda: len(world.revived) >= 3, ("monitor-1",))
    assert sorted(world.revived) == ["gateway-1", *OTHERS]
    assert world.nodes()["pipeline-1"] == NodeRecord("pipeline-1", "pipeline", 7, None, "stopped", 5.0, 3)


def test_a_node_stopped_on_purpose_is_not_revived(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.stop_on_purpose("gateway-1")
    world.pass_time(3 * TIMEOUT, tuple(name for name in ALL_NODES if name != "gateway-1"))
    assert (world.revived, world.nodes()["gateway-1"].state) == ([], "stopped")


def test_a_node_started_again_that_dies_before_its_first_heartbeat_is_revived(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.stop_on_purpose("gateway-1")
    others = tuple(name for name in ALL_NODES if name != "gateway-1")
    world.pass_time(2, others)
    second = Fence(
        "gateway-1", world.registry.take_over("gateway-1", "second process", TIMEOUT), "second process"
    )
    record = NodeRecord("gateway-1", "gateway", 8, None, "alive", world.clock(), second.epoch)
    world.registry.report_node(record, second)
    world.pass_time(TIMEOUT + 2, others)
    assert world.revived == ["gateway-1"]
    assert (world.nodes()["gateway-1"].state, world.nodes()["gateway-1"].epoch) == ("dead", second.epoch)


def test_a_forged_stop_message_changes_no_state_and_prevents_no_revival(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(1, ALL_NODES)
    assert world.nodes()["gateway-1"].state == "alive"
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(TIMEOUT + 1, tuple(name for name in ALL_NODES if name != "gateway-1"))
    assert world.revived == ["gateway-1"]


def test_forged_heartbeats_of_a_dead_node_delay_its_revival_by_a_few_timeouts_at_most(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    others = tuple(name for name in ALL_NODES if name != "gateway-1")
    world.pass_time(2 * TIMEOUT, ALL_NODES)
    world.registry.renew("gateway-1", "another process of gateway-1", 1, TIMEOUT)  # its last renewal
    for _ in range(int(4 * TIMEOUT) + 1):
        world.forge_beat("gateway-1", 1)
        world.pass_time(1, others)
    assert "gateway-1" in world.revived


@pytest.mark.parametrize("epoch", [2, 2**62])
def test_forged_heartbeats_of_a_later_epoch_do_not_displace_the_real_process(
    world: World, epoch: int
) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    for _ in range(int(2 * TIMEOUT)):
        world.forge_beat("gateway-1", epoch)
        world.pass_time(1, ALL_NODES)
    assert (world.revived, world.nodes()["gateway-1"].state, world.nodes()["gateway-1"].epoch) == (
        [],
        "alive",
        1,
    )


@pytest.mark.parametrize("sender", [1, 2, 3])
def test_forged_announcements_depose_no_leader(world: World, sender: int) -> None:
    for name in OTHERS:
        world.start(name)
    epoch = world.await_leader("monitor-3", ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.clear_received()
    for forged in (epoch, epoch + 1, 2**62):
        world.bus.publish(ELECTION_TOPIC, LeaderAnnouncement(sender=sender, epoch=forged))
    world.pass_time(3, ALL_NODES)
    assert world.holds(LEASE, epoch)
    assert [message for message in world.received if isinstance(message, Election)] == []
    assert world.nodes()["monitor-3"].leader


def test_forged_answers_do_not_keep_the_fleet_without_a_leader(world: World) -> None:
    world.start("monitor-1")

    def leads_despite_answer() -> bool:
        world.bus.publish(ELECTION_TOPIC, ElectionAnswer(sender=3, to=1))
        return world.leader() == ("monitor-1", 1)

    world.pass_time_until(leads_despite_answer, ALL_NODES)


def test_a_forged_stop_message_of_the_leader_starts_no_election(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    world.await_leader("monitor-3", ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.clear_received()
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="monitor-3", epoch=1))
    world.pass_time(3, ALL_NODES)
    assert [message for message in world.received if isinstance(message, Election)] == []


def test_heartbeats_with_the_lower_epochs_of_a_restored_registry_count(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.beat("gateway-1", epoch=5)
    world.pass_time(2, tuple(name for name in ALL_NODES if name != "gateway-1"))
    assert world.nodes()["gateway-1"].epoch == 5
    with world.registry._engine.begin() as connection:
        connection.execute(
            update(leases).where(leases.c.name == "gateway-1").values(epoch=1, holder="restored")
        )
    world.forge_beat("gateway-1", 5)
    world.pass_time(2 * TIMEOUT, ALL_NODES)
    assert world.revived == []


def test_a_stop_message_of_a_replaced_process_does_not_stop_its_successor(world: World) -> None:
    alive = tuple(name for name in ALL_NODES if name != "gateway-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.beat("gateway-1", epoch=2)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(2, alive)
    assert world.nodes()["gateway-1"].state == "alive"
    world.pass_time(TIMEOUT, alive)
    assert world.revived == ["gateway-1"]


def test_a_monitor_without_its_own_heartbeats_revives_no_node(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader)
    world.pass_time(5 * TIMEOUT)
    assert world.revived == []
    world.pass_time_until(lambda: len(world.revived) >= len(ALL_NODES) - 1, ("monitor-3",))
    assert sorted(world.revived) == sorted(name for name in ALL_NODES if name != "monitor-3")


class SlowRegistry:
    """Every renewal of the leader's lease takes two seconds, in which live nodes send two heartbeats."""

    def __init__(self, world: World, alive: tuple[str, ...]) -> None:
        self._world = world
        self._alive = alive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.registry, name)

    def renew(self, name: str, *lease: Any) -> bool:
        for _ in range(2):
            self._world.clock.now += 1
            for node in self._alive:
                self._world.beat(node)
        self._world.bus.await_delivery()
        return self._world.registry.renew(name, *lease)


def test_a_slow_registry_does_not_delay_the_handling_of_heartbeats(world: World) -> None:
    alive = tuple(name for name in ALL_NODES if name != "pipeline-1")
    world.start("monitor-3", SlowRegistry(world, alive))
    world.pass_time_until(world.leader, alive)
    world.pass_time_until(lambda: world.revived, alive)
    world.pass_time(2 * TIMEOUT, alive)
    assert set(world.revived) == {"pipeline-1"}


def test_after_a_bus_outage_a_leader_gives_every_node_a_full_timeout(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.pass_time(5 * TIMEOUT)
    world.pass_time(TIMEOUT, ("monitor-3",))
    assert world.revived == []
    assert {node.state for node in world.nodes().values()} == {"alive"}
    world.pass_time(2, ("monitor-3",))
    assert sorted(world.revived) == sorted(name for name in ALL_NODES if name != "monitor-3")


def test_a_stop_whose_message_was_lost_is_read_from_the_registry(world: World) -> None:
    alive = tuple(name for name in ALL_NODES if name not in ("gateway-1", "pipeline-1"))
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.beat("pipeline-1", epoch=2)
    world.pass_time(2, alive)
    records = world.nodes()
    for name in ("gateway-1", "pipeline-1"):  # the latter with an earlier epoch
        world.registry.report_node(replace(records[name], state="stopped", epoch=1))
    world.pass_time(3 * TIMEOUT, alive)
    assert set(world.revived) == {"pipeline-1"}
    assert (world.nodes()["gateway-1"].state, world.nodes()["pipeline-1"].state) == ("stopped", "dead")
    world.pass_time(2, ALL_NODES)
    assert world.nodes()["gateway-1"].state == "alive", "heartbeats override the stop"


def test_heartbeats_override_a_recorded_stop_from_before_the_first_heartbeat(world: World) -> None:
    without_gateway = tuple(name for name in ALL_NODES if name != "gateway-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, without_gateway)
    world.pass_time(1, without_gateway)
    world.registry.report_node(replace(world.nodes()["gateway-1"], pid=100, state="stopped", epoch=1))
    world.pass_time(TIMEOUT + 2, without_gateway)
    assert (world.nodes()["gateway-1"].state, world.revived) == ("stopped", [])
    world.pass_time(2, ALL_NODES)
    assert world.nodes()["gateway-1"].state == "alive"
    world.pass_time(2, ALL_NODES)
    assert world.nodes()["gateway-1"].state == "alive"


def test_a_new_leader_does_not_revive_a_given_up_node_until_its_heartbeat(world: World) -> None:
    given_up = NodeRecord("pipeline-1", "pipeline", 7, None, "dead", 5.0, 1, "no heartbeat")
    world.registry.report_node(given_up)
    alive = tuple(name for name in ALL_NODES if name != "pipeline-1")
    world.start("monitor-1")
    world.pass_time_until(world.leader, alive)
    world.pass_time(5 * TIMEOUT, alive)
    assert (world.revived, world.nodes()["pipeline-1"]) == ([], given_up)
    world.pass_time(2, ALL_NODES)
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].alarm) == ("alive", None)


def test_the_failure_of_a_live_node_is_its_alarm_under_a_new_leader_too(world: World) -> None:
    others = tuple(name for name in ALL_NODES if name != "pipeline-1")

    def pass_time(seconds: int, alarm: str | None) -> None:
        for _ in range(seconds):
            world.beat("pipeline-1", alarm=alarm)
            world.pass_time(1, others)

    def state_and_alarm() -> tuple[str, str | None]:
        node = world.nodes()["pipeline-1"]
        return node.state, node.alarm

    for name in OTHERS:
        world.start(name)
    epoch = world.await_leader("monitor-3", ALL_NODES)
    pass_time(3, "no space left")
    assert state_and_alarm() == ("alive", "no space left")

    world.stop("monitor-3")
    others = tuple(name for name in others if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", epoch + 1), (*others, "pipeline-1"))
    world.registry.report_node(replace(world.nodes()["pipeline-1"], alarm="no space left"))
    pass_time(3, "no space left")
    assert state_and_alarm() == ("alive", "no space left")
    pass_time(2, None)
    assert state_and_alarm() == ("alive", None)
    assert "pipeline-1" not in world.revived


class RecordingRegistry:
    """A registry that records the states written about a node under a fence."""

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self._name = name
        self.written: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def report_node(self, node: NodeRecord, fence: Fence) -> bool:
        if node.name == self._name:
            self.written.append(node.state)
        return self._registry.report_node(node, fence)


def test_every_revival_attempt_is_recorded_under_the_epoch(world: World) -> None:
    registry = RecordingRegistry(world.registry, "pipeline-1")
    alive = tuple(name for name in ALL_NODES if name != "pipeline-1")
    world.start("monitor-3", registry)
    world.pass_time_until(lambda: len(world.revived) >= 3, alive)
    assert registry.written.count("dead") == 3


def test_a_restarted_service_is_recorded_as_alive(world: World) -> None:
    world.roster = NodesSection(services=("rabbitmq",))
    alive = NodeRecord("rabbitmq", "service", 7, "amqp://127.0.0.1:5672", "alive", 5.0, 0)
    world.services.append(alive)
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    world.registry.report_node(replace(alive, state="stopped", pid=None))
    world.pass_time(2, ALL_NODES)
    assert world.nodes()["rabbitmq"] == alive


class CoordinatorStub:
    """Replaces the coordinator; keeps the function that says whether all gateways are alive."""

    def __init__(self, *_: Any, are_gateways_alive: Callable[[], bool]) -> None:
        self.are_gateways_alive = are_gateways_alive
        self.is_stale = threading.Event()
        COORDINATORS.append(self)

    def start(self) -> None: ...

    def stop(self) -> None: ...


COORDINATORS: list[CoordinatorStub] = []


def test_gateways_are_alive_unless_one_is_dead_or_all_are_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "Coordinator", CoordinatorStub)
    world.roster = NodesSection(gateways=("gateway-1", "gateway-2"))
    both = (*ALL_NODES, "gateway-2")
    world.start("monitor-3")
    world.pass_time_until(world.leader, both)
    coordinator = COORDINATORS[-1]
    world.pass_time(2, both)
    assert coordinator.are_gateways_alive()
    world.pass_time(TIMEOUT + 2, ALL_NODES)
    assert not coordinator.are_gateways_alive()
    world.pass_time(2, both)
    assert coordinator.are_gateways_alive()
    world.stop_on_purpose("gateway-2")
    world.pass_time(2 * TIMEOUT, ALL_NODES)
    assert coordinator.are_gateways_alive(), "a stopped gateway does not count"
    world.stop_on_purpose("gateway-1")
    world.pass_time(2, tuple(name for name in ALL_NODES if name != "gateway-1"))
    assert not coordinator.are_gateways_alive(), "no gateway is left"


def test_gateways_do_not_count_as_alive_during_a_bus_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "Coordinator", CoordinatorStub)
    world.start("monitor-3")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(2, ALL_NODES)
    assert COORDINATORS[-1].are_gateways_alive()
    world.pass_time(TIMEOUT)
    assert not COORDINATORS[-1].are_gateways_alive()


# -- membership


class Memberships:
    """Memberships of a node with a short heartbeat interval."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: list[KopitiamError] = []

    def join(self, registry: Any = None) -> Membership:
        pace = MonitorSection(heartbeat_seconds=0.01, timeout_seconds=TIMEOUT)
        context = NodeContext(
            "pipeline-1", "pipeline", registry or self._world.registry, self._world.bus, pace, "h1"
        )
        return Membership(context, self.lost.append)

    def beats(self, epoch: int = 1) -> int:
        beats = (message for message in self._world.received if isinstance(message, Heartbeat))
        return sum(message.epoch == epoch for message in beats)


@pytest.fixture
def memberships(world: World) -> Memberships:
    return Memberships(world)


def test_a_member_sends_heartbeats_renews_its_lease_and_reports_its_stop(
    world: World, memberships: Memberships
) -> None:
    member = memberships.join()
    member.start("http://here")
    eventually(lambda: memberships.beats() > 2)
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].url) == ("alive", "http://here")
    world.clock.now += TIMEOUT + 1
    eventually(lambda: world.holds("pipeline-1", 1))
    member.leave()
    eventually(lambda: Stopped(node="pipeline-1", epoch=1) in world.received)
    assert world.nodes()["pipeline-1"].state == "stopped"
    assert not world.holds("pipeline-1", 1)
    assert memberships.lost == []


def test_heartbeats_carry_the_failure_of_a_member_until_it_is_over(
    world: World, memberships: Memberships
) -> None:
    alarms = ["x" * 5000]
    member = memberships.join()
    member.start(alarm=lambda: alarms[0] if alarms else None)
    eventually(lambda: memberships.beats() > 2)
    assert {beat.alarm for beat in world.received if isinstance(beat, Heartbeat)} == {"x" * 1000}
    alarms.clear()
    world.clear_received()
    before = memberships.beats()
    eventually(lambda: memberships.beats() > before + 2)
    assert [beat.alarm for beat in world.received if isinstance(beat, Heartbeat)][-1] is None
    member.leave()
    assert memberships.lost == []


def test_a_member_whose_lease_was_taken_over_calls_on_lost_once_and_reports_no_stop(
    world: World, memberships: Memberships
) -> None:
    old = memberships.join()
    old.start()
    new = memberships.join()
    new.start()
    eventually(lambda: memberships.lost)
    eventually(lambda: not any(thread.is_alive() for thread in old._threads))
    world.bus.await_delivery()
    beats, before = memberships.beats(epoch=1), memberships.beats(epoch=2)
    eventually(lambda: memberships.beats(epoch=2) > before + 20)
    old.leave()
    assert [str(error) for error in memberships.lost] == [
        "pipeline-1: another process has taken its lease; epoch 1 is stale"
    ]
    assert memberships.beats(epoch=1) == beats
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].epoch) == ("alive", 2)
    new.leave()
    eventually(lambda: [message for message in world.received if isinstance(message, Stopped)])
    assert [message.epoch for message in world.received if isinstance(message, Stopped)] == [2]


def test_a_member_whose_work_has_failed_stops_its_heartbeats_and_reports_no_stop(
    world: World, memberships: Memberships
) -> None:
    reasons: list[str] = []
    member = memberships.join()
    member.start(failure_reason=lambda: reasons[0] if reasons else None)
    eventually(lambda: memberships.beats() > 2)
    reasons.append("Spark's process has answered nothing for 20 s")
    eventually(lambda: memberships.lost)
    for thread in member._threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert [str(error) for error in memberships.lost] == [f"pipeline-1: {reasons[0]}"]
    member.stop_silently()
    assert not [message for message in world.received if isinstance(message, Stopped)]
    assert world.nodes()["pipeline-1"].state == "alive"  # until the monitors declare it dead


def test_a_monitor_has_a_failure_reason_while_its_loop_is_stalled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start("monitor-3")
    monitor = world._monitors["monitor-3"]._monitor
    world.pass_time(2)
    is_stalled, may_go_on = threading.Event(), threading.Event()

    def stall() -> None:
        is_stalled.set()
        may_go_on.wait(PATIENCE_SECONDS)

    monitor._inbox.put(stall)
    assert is_stalled.wait(PATIENCE_SECONDS)
    assert monitor.failure_reason() is None
    world.clock.now += 6 * TIMEOUT + 1
    assert monitor.failure_reason() == "the decision loop has been stalled for 36 s"
    may_go_on.set()
    world.pass_time(1)
    assert monitor.failure_reason() is None


class UnavailableRegistry:
    """A registry whose renewals fail."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def renew(self, *_lease: Any) -> bool:
        raise RegistryUnavailable("registry: unavailable")


def test_a_member_without_the_registry_still_sends_heartbeats(world: World, memberships: Memberships) -> None:
    member = memberships.join(UnavailableRegistry(world.registry))
    member.start()
    eventually(lambda: memberships.beats() > 5)
    member.leave()
    assert memberships.lost == []


def test_unexpected_errors_do_not_end_the_heartbeats(
    world: World, memberships: Memberships, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = memberships.join()
    publish, failures = world.bus.publish, []

    def fail_three_times(*message: Any) -> None:
        if len(failures) < 3:
            failures.append(message)
            raise KeyError("unexpected")
        publish(*message)

    monkeypatch.setattr(world.bus, "publish", fail_three_times)
    member.start()
    eventually(lambda: memberships.beats() > 2)
    member.leave()
    assert (len(failures), memberships.lost) == (3, [])


def test_leaving_does_not_wait_for_a_registry_that_hangs(
    world: World, memberships: Memberships, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_available, called, has_returned = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        called.set()
        is_available.wait(PATIENCE_SECONDS)
        has_returned.set()

    member = memberships.join()
    member.start()
    monkeypatch.setattr(membership, "_LEAVING_SECONDS", 0.05)
    monkeypatch.setattr(world.registry, "report_node", hang)
    member.leave()
    assert not has_returned.is_set()
    eventually(called.is_set)
    is_available.set()
    eventually(lambda: Stopped(node="pipeline-1", epoch=1) in world.received)


# -- the reviver


def reviver_of(
    command: str, config: Path | None = None, on_done: Callable[[str, str | None], None] = print
) -> Reviver:
    return Reviver(command, config, on_done, lambda node: f"host-of-{node}")


@pytest.mark.parametrize("command", ["kopi node start {nodes}", "start {}", "start 'one", "", "  "])
def test_an_invalid_command_is_refused_at_once(command: str) -> None:
    with pytest.raises(ConfigError, match=r"^monitor\.revive: "):
        reviver_of(command)


def test_node_and_settings_file_are_inserted_as_single_arguments() -> None:
    reviver = reviver_of("kopi node start {node} --config {config}", Path("/my settings/f.toml"))
    this_kopi = [sys.executable, "-m", "kopitiam"]
    assert reviver.argv("monitor-1") == [
        *this_kopi, "node", "start", "monitor-1", "--config", "/my settings/f.toml"
    ]  # fmt: skip
    assert reviver_of("docker restart kopi-{node}").argv("a") == ["docker", "restart", "kopi-a"]
    command = "ssh {host} kopi node start {node}"
    assert reviver_of(command).argv("a") == ["ssh", "host-of-a", "kopi", "node", "start", "a"]


def test_the_default_command_omits_the_settings_file_if_there_is_none() -> None:
    reviver = reviver_of(MonitorSection().revive)
    assert reviver.argv("monitor-1")[1:] == ["-m", "kopitiam", "node", "start", "monitor-1"]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("true", None),
        ("sh -c 'echo first; echo last >&2; exit 3'", "exit code 3: last"),
        ("there-is-no-such-program", "[Errno 2] No such file or directory: 'there-is-no-such-program'"),
    ],
)
def test_on_done_is_called_and_failures_are_logged_whatever_the_exit_of_the_command(
    command: str, complaint: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[tuple[str, str | None]] = []
    reviver = reviver_of(command, on_done=lambda *outcome: done.append(outcome))
    with caplog.at_level(logging.ERROR):
        reviver.revive("monitor-1")
        eventually(lambda: done)
    reviver.close()
    assert done == [("monitor-1", complaint)]
    line = f"reviving monitor-1 on host-of-monitor-1: {complaint}"
    assert caplog.messages == ([line] if complaint else [])


def test_a_node_is_not_revived_twice_at_once(tmp_path: Path) -> None:
    done: list[str] = []
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    command = f"sh -c 'echo {{node}} >> {begun}; until [ -e {gate} ]; do sleep 0.01; done'"
    reviver = reviver_of(command, on_done=lambda node, _: done.append(node))
    for node in ("one", "one", "other", "one"):
        reviver.revive(node)
    eventually(lambda: begun.exists() and len(begun.read_text().split()) == 2)
    gate.touch()
    eventually(lambda: len(done) == 2)
    assert sorted(done) == sorted(begun.read_text().split()) == ["one", "other"]
    reviver.close()


def test_closing_ends_running_commands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    mark = tmp_path / "pid"
    command = f"sh -c 'trap \"\" TERM; echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 1000'"
    reviver = reviver_of(command, on_done=lambda node, _: done.append(node))
    reviver.revive("monitor-1")
    eventually(mark.exists)
    reviver.close()
    eventually(lambda: done == ["monitor-1"])
    assert not psutil.pid_exists(int(mark.read_text()))
    reviver.revive("monitor-2")
    assert done == ["monitor-1"]
    assert not [message for message in caplog.messages if message.startswith("reviving")]


# -- the service watch


class ProbedService:
    """A service watch with one service, probed every second."""

    def __init__(self, patience_seconds: float = 0.0, revive_limit: int = 2) -> None:
        self.answers = True
        self.services = ["rabbitmq"]
        self.location: ServiceLocation | None = ServiceLocation(7, "amqp://127.0.0.1:5672")
        self.revived: list[float] = []
        self.reported: NodeRecord | Unavailable | None = None
        self.now = 0.0
        self.watch = ServiceWatch(
            lambda: dict.fromkeys(self.services, lambda: self.answers),
            lambda _: self.location,
            lambda _: self.revived.append(self.now),
            self._records,
            every_seconds=BEAT,
            patience_seconds=patience_seconds,
            revive_limit=revive_limit,
        )

    def _records(self) -> list[NodeRecord]:
        if isinstance(self.reported, Unavailable):
            raise self.reported
        return [self.reported] if self.reported else []

    def report(self, state: NodeState, epoch: int) -> None:
        self.reported = NodeRecord("rabbitmq", "service", None, None, state, 0.0, epoch, host="h1")

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.watch.probe_all(self.now)
            self.now += BEAT

    @property
    def state(self) -> str:
        [node] = self.watch.nodes(self.now)
        return node.state


def test_a_service_that_answers_is_not_revived() -> None:
    service = ProbedService()
    service.pass_time(500)
    assert (service.revived, service.state) == ([], "alive")


def test_a_service_that_misses_three_probes_is_revived() -> None:
    service = ProbedService()
    service.pass_time(10)
    service.answers = False
    service.pass_time(5)
    assert (service.revived, service.state) == ([12.0], "dead")
    service.watch.on_revived("rabbitmq", service.now)
    assert service.state == "starting"
    service.answers = True
    service.pass_time(30)
    assert (service.revived, service.state) == ([12.0], "alive")


def test_the_record_of_a_service_has_its_pid_and_url() -> None:
    service = ProbedService()
    service.pass_time(1)
    [node] = service.watch.nodes(service.now)
    assert (node.state, node.pid, node.url) == ("alive", 7, "amqp://127.0.0.1:5672")


def test_a_service_stopped_on_purpose_is_not_revived_and_is_alive_after_a_start() -> None:
    service = ProbedService()
    service.pass_time(10)
    service.answers, service.location = False, None
    service.pass_time(100)
    assert (service.revived, service.state) == ([], "stopped")
    service.answers, service.location = True, ServiceLocation(8)
    service.pass_time(1)
    assert (service.revived, service.state) == ([], "alive")


def test_a_service_of_another_machine_that_the_registry_says_was_stopped_is_not_revived() -> None:
    service = ProbedService()
    service.location = ServiceLocation(None, "amqp://h1:8451", "h1")
    service.pass_time(10)
    service.report("stopped", 1)
    service.pass_time(1)  # it still answers, and is about to stop
    service.answers = False
    service.pass_time(50)
    service.reported = Unavailable("registry: gone too")
    service.pass_time(50)
    assert (service.revived, service.state) == ([], "stopped")
    service.report("starting", 2)
    service.pass_time(2)
    assert (service.revived, service.state) == ([], "starting")
    service.answers = True
    service.pass_time(1)
    [node] = service.watch.nodes(service.now)
    assert (node.state, node.epoch, node.host, node.pid) == ("alive", 2, "h1", 0)
    service.answers = False
    service.pass_time(5)
    assert len(service.revived) == 1


def test_the_record_of_an_earlier_leader_stops_no_service() -> None:
    service = ProbedService()
    service.report("starting", 3)
    service.pass_time(10)
    service.report("stopped", 2)
    service.pass_time(10)
    assert service.state == "alive"


def test_unexpected_errors_do_not_end_the_watch() -> None:
    stopping, calls = threading.Event(), []

    def fail() -> dict[str, Callable[[], bool]]:
        calls.append("probes")
        if len(calls) == 3:
            stopping.set()
        raise KeyError("unexpected")

    watch = ServiceWatch(fail, lambda _: None, print, every_seconds=0.001, patience_seconds=0, revive_limit=1)
    watch.run(stopping)
    assert len(calls) == 3


def test_one_missed_probe_causes_no_revival() -> None:
    service = ProbedService()
    for _ in range(20):
        service.answers = not service.answers
        service.pass_time(2)
    assert service.revived == []


def test_a_monitor_with_more_patience_does_not_revive_what_another_has_revived() -> None:
    first, second = ProbedService(), ProbedService(patience_seconds=3 * BEAT)
    for service in (first, second):
        service.pass_time(1)
        service.answers = False
        service.pass_time(4)
        service.answers = True  # the first monitor has revived it
        service.pass_time(20)
    assert (first.revived, second.revived) == ([3.0], [])


def test_a_service_that_stays_dead_is_revived_up_to_the_limit_and_then_raises_one_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = ProbedService(revive_limit=2)
    service.pass_time(1)
    service.answers = False
    service.pass_time(200)
    assert len(service.revived) == 2
    alarms = [message for message in caplog.messages if message.startswith("ALARM: rabbitmq: ")]
    assert len(alarms) == 1


def test_an_added_service_is_probed_and_a_removed_one_is_not() -> None:
    service = ProbedService()
    service.pass_time(5)
    service.services = ["spark-worker-3"]
    service.pass_time(1)
    assert [node.name for node in service.watch.nodes(service.now)] == ["spark-worker-3"]
    service.answers = False
    service.pass_time(5)
    assert len(service.revived) == 1


# -- machines and versions


def test_a_record_names_the_machine_of_its_node(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(3, ALL_NODES)
    hosts = {name: world.nodes()[name].host for name in ALL_NODES}
    assert hosts == {name: f"host-of-{name}" for name in ALL_NODES}


@pytest.mark.parametrize(("version", "shown"), [("9.9", "9.9"), (None, "unknown")])
def test_a_node_of_another_version_is_named_with_its_machine_until_it_has_that_of_the_others(
    world: World, version: str | None, shown: str
) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(3, ALL_NODES)
    world.beat("pipeline-1", version=version)
    world.pass_time(1, tuple(name for name in ALL_NODES if name != "pipeline-1"))
    alarms = {name: node.alarm for name, node in world.nodes().items() if node.alarm}
    text = f"runs version {shown} on host-of-pipeline-1, and the others {membership.VERSION}"
    assert alarms == {"pipeline-1": text}
    world.pass_time(2, ALL_NODES)
    assert not [node.alarm for node in world.nodes().values() if node.alarm]


class FastClock(UnavailableRegistry):
    """A registry whose clock is behind that of this machine."""

    offset = 3600.4

    def renew(self, *lease: Any) -> bool:
        return bool(self._registry.renew(*lease))

    def clock_offset(self) -> float:
        return self.offset


def test_a_member_names_a_machine_with_a_wrong_clock_until_it_is_right(
    world: World, memberships: Memberships
) -> None:
    registry = FastClock(world.registry)
    member = memberships.join(registry)
    member.start()

    def alarms() -> set[str | None]:
        return {beat.alarm for beat in world.received[-2:] if isinstance(beat, Heartbeat)}

    eventually(lambda: alarms() == {"the clock of h1 is 3,600 s ahead of the registry's"})
    registry.offset = -75.0
    eventually(lambda: alarms() == {"the clock of h1 is 75 s behind the registry's"})
    registry.offset = 1.0
    eventually(lambda: alarms() == {None})
    member.leave()


# -- changes of the configured nodes


def test_an_added_node_is_recorded_and_revived(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.roster = NodesSection(gateways=("gateway-1", "gateway-2"))
    world.pass_time(3, (*ALL_NODES, "gateway-2"))
    assert world.nodes()["gateway-2"].state == "alive"
    world.pass_time_until(lambda: world.revived, ALL_NODES)
    assert world.revived == ["gateway-2"]


def test_a_removed_node_is_neither_recorded_nor_revived(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ALL_NODES)
    world.pass_time(3, ALL_NODES)
    world.roster = NodesSection(gateways=())
    world.pass_time(3 * TIMEOUT, tuple(name for name in ALL_NODES if name != "gateway-1"))
    assert "gateway-1" not in world.nodes()
    assert not world.revived
