"""What surrounds the machines: the monitor, a node's membership, the command that revives, and the watch over
services.
"""

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
from kopitiam.contracts.errors import ConfigError, KopitiamError, RegistryUnavailable
from kopitiam.contracts.messages import (
    ELECTION_TOPIC,
    HEARTBEAT_TOPIC,
    Election,
    ElectionAnswer,
    Heartbeat,
    LeaderAnnouncement,
    NodeRecord,
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

EVERYBODY = tuple(NODES.kinds)
OTHERS = ("monitor-2", "monitor-3")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(World(tmp_path)) as made:
        yield made


# -- who leads


def test_a_monitor_that_is_alone_leads(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(lambda: world.leader() == ("monitor-1", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    assert [node.name for node in world.nodes().values() if node.leader] == ["monitor-1"]
    assert world.holds(LEASE, 1)


def test_a_higher_one_takes_over_and_the_lower_one_stays_quiet(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, EVERYBODY)
    world.start("monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 2), EVERYBODY)
    world.pass_time(3, EVERYBODY)
    world.forget_heard()
    world.pass_time(3 * TIMEOUT, EVERYBODY)
    assert {message.sender for message in world.heard if isinstance(message, LeaderAnnouncement)} == {3}
    assert not [message for message in world.heard if isinstance(message, Election)]
    assert [node.name for node in world.nodes().values() if node.leader] == ["monitor-3"]


def test_when_the_leader_is_gone_the_next_one_leads_and_shows_it_as_dead(world: World) -> None:
    world.start("monitor-2")
    world.start("monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    known = world.nodes()
    world.stop("monitor-3")
    alive = tuple(name for name in EVERYBODY if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", 2), alive)
    world.pass_time_until(lambda: world.revived, alive)
    nodes = world.nodes()
    assert (nodes["monitor-3"].state, nodes["monitor-3"].pid) == ("dead", 100)
    assert [node.name for node in nodes.values() if node.leader] == ["monitor-2"]
    assert all((nodes[name].state, nodes[name].since) == ("alive", known[name].since) for name in alive)
    assert world.revived == ["monitor-3"]


def test_a_new_leader_does_not_show_those_as_starting_whom_it_has_not_heard_yet(world: World) -> None:
    world.registry.report_node(NodeRecord("pipeline-1", "pipeline", 7, None, "alive", 5.0, 3, leader=True))
    world.start("monitor-1")
    world.pass_time_until(world.leader, ("monitor-1",))
    world.pass_time(1, ("monitor-1",))
    assert world.nodes()["pipeline-1"] == NodeRecord("pipeline-1", "pipeline", 7, None, "alive", 5.0, 3)


def test_one_that_was_replaced_while_it_stood_still_does_not_take_the_lead(world: World) -> None:
    world.start("monitor-1")
    world.registry.take_over("monitor-1", "a new life", 1e6)
    world.pass_time_until(
        lambda: sum(isinstance(message, Election) for message in world.heard) > 2, ("monitor-1",)
    )
    assert world.leader() is None
    assert world.registry.take_over_if_higher(LEASE, 1, "a new life", 10) == 1


def test_when_the_leader_says_goodbye_the_next_one_leads_without_waiting(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.stop("monitor-3")
    assert not world.holds(LEASE, 1)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="monitor-3", epoch=1))
    world.pass_time(TIMEOUT / 2, tuple(name for name in EVERYBODY if name != "monitor-3"))
    assert world.leader() == ("monitor-2", 2)


def test_an_epoch_that_the_registry_never_gave_keeps_nobody_from_leading(world: World) -> None:
    world.start("monitor-1")
    world.bus.publish(ELECTION_TOPIC, LeaderAnnouncement(sender=3, epoch=99))
    world.pass_time_until(lambda: world.leader() == ("monitor-1", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    assert world.registry.take_over_if_higher(LEASE, 3, "somebody", 1e6) == 2
    world.pass_time(2, EVERYBODY)
    world.forget_heard()
    world.pass_time(TIMEOUT, EVERYBODY)
    assert not [message for message in world.heard if isinstance(message, LeaderAnnouncement)]


def test_a_leader_that_is_cut_off_leaves_the_lead_to_others_until_it_hears_itself(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    heard = tuple(name for name in EVERYBODY if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", 2), heard)
    world.pass_time(3 * TIMEOUT, heard)
    assert world.leader() == ("monitor-2", 2)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 3), EVERYBODY)


def test_when_nobody_hears_anybody_the_lead_stays_where_it_is(world: World) -> None:
    for name in NODES.monitors:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.pass_time(5 * TIMEOUT)
    world.roster = NodesSection(services=("rabbitmq",))
    world.services.append(NodeRecord("rabbitmq", "service", None, None, "dead", 5.0, 0))
    world.pass_time(1)
    assert world.nodes()["rabbitmq"].state == "dead", "it goes on telling what it sees without the bus"
    world.forget_heard()
    world.pass_time(2, ("gateway-1", "monitor-2"))  # the others hear later
    world.pass_time(2 * TIMEOUT, EVERYBODY)
    said = {
        (message.sender, message.epoch) for message in world.heard if isinstance(message, LeaderAnnouncement)
    }
    assert said == {(3, 1)}
    assert world.holds(LEASE, 1)
    assert world.revived == []


# -- what the leader decides


def test_a_dead_node_is_revived_once_and_shown_as_dead(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alive = tuple(name for name in EVERYBODY if name != "pipeline-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.pass_time(TIMEOUT + 2, alive)
    assert world.revived == ["pipeline-1"]
    assert list(read_actions(caplog.text)) == [LeaderAction(1, "revives", "pipeline-1")]
    assert {name: node.state for name, node in world.nodes().items()} == {
        name: "alive" if name in alive else "dead" for name in EVERYBODY
    }


def test_a_leader_whose_epoch_is_over_revives_nobody(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ("monitor-1",))
    world.pass_time(TIMEOUT - 2, ("monitor-1",))
    assert world.registry.take_over_if_higher(LEASE, 3, "somebody", 1e6) == 2
    world.forget_heard()
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert [message for message in world.heard if isinstance(message, Election)]
    assert not [message for message in world.heard if isinstance(message, LeaderAnnouncement)]
    assert world.revived == []


class Overtaken:
    """A registry where, when the time has come, another takes the lead right after it was renewed."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self.at = math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def renew(self, *lease: Any) -> bool:
        is_renewed = self._registry.renew(*lease)
        if self._clock() >= self.at:
            self._registry.take_over_if_higher(LEASE, 3, "somebody", 1e6)
        return is_renewed


def test_a_leader_that_is_overtaken_between_looking_and_deciding_revives_nobody(world: World) -> None:
    registry = Overtaken(world.registry, world.clock)
    world.start("monitor-1", registry)
    world.pass_time_until(lambda: "pipeline-1" in world.nodes(), ("monitor-1",))
    registry.at = world.nodes()["pipeline-1"].since + TIMEOUT
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert world.holds(LEASE, 2)
    assert world.revived == []
    assert {node.state for node in world.nodes().values()} <= {"starting", "alive"}


def test_nodes_that_left_on_purpose_are_not_revived_by_a_new_leader(world: World) -> None:
    world.registry.report_node(NodeRecord("pipeline-1", "pipeline", 7, None, "stopped", 5.0, 3))
    world.start("monitor-1")
    world.pass_time_until(lambda: len(world.revived) >= 3, ("monitor-1",))
    assert sorted(world.revived) == ["gateway-1", *OTHERS]
    assert world.nodes()["pipeline-1"] == NodeRecord("pipeline-1", "pipeline", 7, None, "stopped", 5.0, 3)


def test_a_node_that_says_goodbye_is_not_revived(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.leave("gateway-1")
    world.pass_time(3 * TIMEOUT, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert (world.revived, world.nodes()["gateway-1"].state) == ([], "stopped")


def test_a_node_started_again_that_dies_before_its_first_heartbeat_is_revived(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.leave("gateway-1")
    others = tuple(name for name in EVERYBODY if name != "gateway-1")
    world.pass_time(2, others)
    second = Fence("gateway-1", world.registry.take_over("gateway-1", "second life", TIMEOUT), "second life")
    record = NodeRecord("gateway-1", "gateway", 8, None, "alive", world.clock(), second.epoch)
    world.registry.report_node(record, second)
    world.pass_time(TIMEOUT + 2, others)
    assert world.revived == ["gateway-1"]
    assert (world.nodes()["gateway-1"].state, world.nodes()["gateway-1"].epoch) == ("dead", second.epoch)


def test_a_forged_goodbye_stops_nobody_and_the_node_is_still_revived_when_it_dies(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(1, EVERYBODY)
    assert world.nodes()["gateway-1"].state == "alive"
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(TIMEOUT + 1, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert world.revived == ["gateway-1"]


def test_forged_heartbeats_of_a_dead_node_put_its_revival_off_by_two_timeouts_at_most(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    others = tuple(name for name in EVERYBODY if name != "gateway-1")
    world.pass_time(2 * TIMEOUT, EVERYBODY)
    world.registry.renew("gateway-1", "a life of gateway-1", 1, TIMEOUT)  # its last one
    for _ in range(int(4 * TIMEOUT) + 1):
        world.forge_beat("gateway-1", 1)
        world.pass_time(1, others)
    assert "gateway-1" in world.revived


@pytest.mark.parametrize("epoch", [2, 2**62])
def test_a_forged_heartbeat_of_a_later_life_does_not_make_the_real_one_unheard(
    world: World, epoch: int
) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    for _ in range(int(2 * TIMEOUT)):
        world.forge_beat("gateway-1", epoch)
        world.pass_time(1, EVERYBODY)
    assert (world.revived, world.nodes()["gateway-1"].state, world.nodes()["gateway-1"].epoch) == (
        [],
        "alive",
        1,
    )


@pytest.mark.parametrize("sender", [1, 2, 3])
def test_forged_claims_to_lead_depose_nobody(world: World, sender: int) -> None:
    for name in OTHERS:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.forget_heard()
    for epoch in (1, 2, 2**62):
        world.bus.publish(ELECTION_TOPIC, LeaderAnnouncement(sender=sender, epoch=epoch))
    world.pass_time(3, EVERYBODY)
    assert world.holds(LEASE, 1)
    assert [message for message in world.heard if isinstance(message, Election)] == []
    assert world.nodes()["monitor-3"].leader


def test_forged_answers_do_not_keep_the_fleet_without_a_leader(world: World) -> None:
    world.start("monitor-1")

    def answered() -> bool:
        world.bus.publish(ELECTION_TOPIC, ElectionAnswer(sender=3, to=1))
        return world.leader() == ("monitor-1", 1)

    world.pass_time_until(answered, EVERYBODY)


def test_forged_goodbyes_of_the_leader_start_no_election(world: World) -> None:
    for name in OTHERS:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.forget_heard()
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="monitor-3", epoch=1))
    world.pass_time(3, EVERYBODY)
    assert [message for message in world.heard if isinstance(message, Election)] == []


def test_after_the_registry_was_restored_the_lives_of_its_smaller_epochs_are_heard(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.beat("gateway-1", epoch=5)
    world.pass_time(2, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert world.nodes()["gateway-1"].epoch == 5
    with world.registry._engine.begin() as connection:
        connection.execute(
            update(leases).where(leases.c.name == "gateway-1").values(epoch=1, holder="restored")
        )
    world.forge_beat("gateway-1", 5)
    world.pass_time(2 * TIMEOUT, EVERYBODY)
    assert world.revived == []


def test_the_goodbye_of_one_that_was_replaced_is_not_its_successors(world: World) -> None:
    alive = tuple(name for name in EVERYBODY if name != "gateway-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.beat("gateway-1", epoch=2)
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(2, alive)
    assert world.nodes()["gateway-1"].state == "alive"
    world.pass_time(TIMEOUT, alive)
    assert world.revived == ["gateway-1"]


def test_a_monitor_that_does_not_hear_itself_judges_nobody(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader)
    world.pass_time(5 * TIMEOUT)
    assert world.revived == []
    world.pass_time_until(lambda: len(world.revived) >= len(EVERYBODY) - 1, ("monitor-3",))
    assert sorted(world.revived) == sorted(name for name in EVERYBODY if name != "monitor-3")


class SlowRegistry:
    """Every renewal of the leader's lease takes two seconds, in which those who live beat twice."""

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


def test_a_leader_whose_registry_is_slow_does_not_fall_behind_the_heartbeats(world: World) -> None:
    alive = tuple(name for name in EVERYBODY if name != "pipeline-1")
    world.start("monitor-3", SlowRegistry(world, alive))
    world.pass_time_until(world.leader, alive)
    world.pass_time_until(lambda: world.revived, alive)
    world.pass_time(2 * TIMEOUT, alive)
    assert set(world.revived) == {"pipeline-1"}


def test_after_it_was_deaf_a_leader_gives_everybody_a_full_timeout(world: World) -> None:
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.pass_time(5 * TIMEOUT)
    world.pass_time(TIMEOUT, ("monitor-3",))
    assert world.revived == []
    assert {node.state for node in world.nodes().values()} == {"alive"}
    world.pass_time(2, ("monitor-3",))
    assert sorted(world.revived) == sorted(name for name in EVERYBODY if name != "monitor-3")


def test_a_goodbye_that_was_lost_is_found_in_the_registry(world: World) -> None:
    alive = tuple(name for name in EVERYBODY if name not in ("gateway-1", "pipeline-1"))
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.beat("pipeline-1", epoch=2)
    world.pass_time(2, alive)
    known = world.nodes()
    for name in ("gateway-1", "pipeline-1"):  # of the latter an earlier life
        world.registry.report_node(replace(known[name], state="stopped", epoch=1))
    world.pass_time(3 * TIMEOUT, alive)
    assert set(world.revived) == {"pipeline-1"}
    assert (world.nodes()["gateway-1"].state, world.nodes()["pipeline-1"].state) == ("stopped", "dead")
    world.pass_time(2, EVERYBODY)
    assert world.nodes()["gateway-1"].state == "alive", "heartbeats prove that it is there"


def test_heartbeats_outweigh_a_goodbye_of_a_node_that_the_leader_had_never_heard(world: World) -> None:
    without_gateway = tuple(name for name in EVERYBODY if name != "gateway-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, without_gateway)
    world.pass_time(1, without_gateway)
    world.registry.report_node(replace(world.nodes()["gateway-1"], pid=100, state="stopped", epoch=1))
    world.pass_time(TIMEOUT + 2, without_gateway)
    assert (world.nodes()["gateway-1"].state, world.revived) == ("stopped", [])
    world.pass_time(2, EVERYBODY)
    assert world.nodes()["gateway-1"].state == "alive"
    world.pass_time(2, EVERYBODY)
    assert world.nodes()["gateway-1"].state == "alive"


def test_who_was_given_up_stays_so_for_a_new_leader_until_it_is_heard_of(world: World) -> None:
    given_up = NodeRecord("pipeline-1", "pipeline", 7, None, "dead", 5.0, 1, "no heartbeat")
    world.registry.report_node(given_up)
    alive = tuple(name for name in EVERYBODY if name != "pipeline-1")
    world.start("monitor-1")
    world.pass_time_until(world.leader, alive)
    world.pass_time(5 * TIMEOUT, alive)
    assert (world.revived, world.nodes()["pipeline-1"]) == ([], given_up)
    world.pass_time(2, EVERYBODY)
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].alarm) == ("alive", None)


def test_the_trouble_of_a_living_node_is_its_alarm_and_a_new_leader_does_not_give_it_up(world: World) -> None:
    others = tuple(name for name in EVERYBODY if name != "pipeline-1")

    def pass_time(seconds: int, trouble: str | None) -> None:
        for _ in range(seconds):
            world.beat("pipeline-1", trouble=trouble)
            world.pass_time(1, others)

    def shown() -> tuple[str, str | None]:
        node = world.nodes()["pipeline-1"]
        return node.state, node.alarm

    for name in OTHERS:
        world.start(name)
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 1), EVERYBODY)
    pass_time(3, "no space left")
    assert shown() == ("alive", "no space left")

    world.stop("monitor-3")
    others = tuple(name for name in others if name != "monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-2", 2), (*others, "pipeline-1"))
    world.registry.report_node(replace(world.nodes()["pipeline-1"], alarm="no space left"))
    pass_time(3, "no space left")
    assert shown() == ("alive", "no space left")
    pass_time(2, None)
    assert shown() == ("alive", None)
    assert "pipeline-1" not in world.revived


class Witness:
    """A registry that keeps what was written of a node under a fence."""

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


def test_every_attempt_to_revive_is_written_under_the_epoch(world: World) -> None:
    witness = Witness(world.registry, "pipeline-1")
    alive = tuple(name for name in EVERYBODY if name != "pipeline-1")
    world.start("monitor-3", witness)
    world.pass_time_until(lambda: len(world.revived) >= 3, alive)
    assert witness.written.count("dead") == 3


def test_a_service_that_is_started_again_is_shown_again(world: World) -> None:
    world.roster = NodesSection(services=("rabbitmq",))
    alive = NodeRecord("rabbitmq", "service", 7, "amqp://127.0.0.1:5672", "alive", 5.0, 0)
    world.services.append(alive)
    world.start("monitor-1")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.registry.report_node(replace(alive, state="stopped", pid=None))
    world.pass_time(2, EVERYBODY)
    assert world.nodes()["rabbitmq"] == alive


class Clients:
    """In the place of the barrier: whether the leader says that clients can be heard."""

    def __init__(self, *_: Any, are_gateways_alive: Callable[[], bool]) -> None:
        self.can_be_heard = are_gateways_alive
        self.is_stale = threading.Event()
        CLIENTS.append(self)

    def start(self) -> None: ...

    def stop(self) -> None: ...


CLIENTS: list[Clients] = []


def test_while_a_gateway_is_dead_its_clients_cannot_be_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "Coordinator", Clients)
    world.roster = NodesSection(gateways=("gateway-1", "gateway-2"))
    both = (*EVERYBODY, "gateway-2")
    world.start("monitor-3")
    world.pass_time_until(world.leader, both)
    clients = CLIENTS[-1]
    world.pass_time(2, both)
    assert clients.can_be_heard()
    world.pass_time(TIMEOUT + 2, EVERYBODY)
    assert not clients.can_be_heard()
    world.pass_time(2, both)
    assert clients.can_be_heard()
    world.leave("gateway-2")
    world.pass_time(2 * TIMEOUT, EVERYBODY)
    assert clients.can_be_heard(), "one that left is not waited for"
    world.leave("gateway-1")
    world.pass_time(2, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert not clients.can_be_heard(), "nobody is left to hear them"


def test_a_deaf_leader_does_not_know_whether_clients_can_be_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "Coordinator", Clients)
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    assert CLIENTS[-1].can_be_heard()
    world.pass_time(TIMEOUT)
    assert not CLIENTS[-1].can_be_heard()


# -- membership


class Lives:
    """Memberships of nodes that beat often."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: list[KopitiamError] = []

    def join(self, registry: Any = None) -> Membership:
        pace = MonitorSection(heartbeat_seconds=0.01, timeout_seconds=TIMEOUT)
        place = NodeContext("pipeline-1", "pipeline", registry or self._world.registry, self._world.bus, pace)
        return Membership(place, self.lost.append)

    def beats(self, epoch: int = 1) -> int:
        heard = (message for message in self._world.heard if isinstance(message, Heartbeat))
        return sum(message.epoch == epoch for message in heard)


@pytest.fixture
def lives(world: World) -> Lives:
    return Lives(world)


def test_a_member_beats_keeps_its_lease_and_says_goodbye(world: World, lives: Lives) -> None:
    member = lives.join()
    member.start("http://here")
    eventually(lambda: lives.beats() > 2)
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].url) == ("alive", "http://here")
    world.clock.now += TIMEOUT + 1
    eventually(lambda: world.holds("pipeline-1", 1))
    member.leave()
    eventually(lambda: Stopped(node="pipeline-1", epoch=1) in world.heard)
    assert world.nodes()["pipeline-1"].state == "stopped"
    assert not world.holds("pipeline-1", 1)
    assert lives.lost == []


def test_a_member_tells_its_trouble_with_every_heartbeat_until_it_is_over(world: World, lives: Lives) -> None:
    troubles = ["x" * 5000]
    member = lives.join()
    member.start(trouble=lambda: troubles[0] if troubles else None)
    eventually(lambda: lives.beats() > 2)
    assert {beat.trouble for beat in world.heard if isinstance(beat, Heartbeat)} == {"x" * 1000}
    troubles.clear()
    world.forget_heard()
    before = lives.beats()
    eventually(lambda: lives.beats() > before + 2)
    assert [beat.trouble for beat in world.heard if isinstance(beat, Heartbeat)][-1] is None
    member.leave()
    assert lives.lost == []


def test_a_member_whose_place_was_taken_is_told_once_and_leaves_without_a_word(
    world: World, lives: Lives
) -> None:
    old = lives.join()
    old.start()
    new = lives.join()
    new.start()
    eventually(lambda: lives.lost)
    eventually(lambda: not any(thread.is_alive() for thread in old._threads))
    world.bus.await_delivery()
    beats, before = lives.beats(epoch=1), lives.beats(epoch=2)
    eventually(lambda: lives.beats(epoch=2) > before + 20)
    old.leave()
    assert [str(error) for error in lives.lost] == [
        "pipeline-1: another process has taken its lease; epoch 1 is stale"
    ]
    assert lives.beats(epoch=1) == beats
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].epoch) == ("alive", 2)
    new.leave()
    eventually(lambda: [message for message in world.heard if isinstance(message, Stopped)])
    assert [message.epoch for message in world.heard if isinstance(message, Stopped)] == [2]


def test_a_member_whose_work_answers_no_more_is_silent_and_leaves_to_be_revived(
    world: World, lives: Lives
) -> None:
    reasons: list[str] = []
    member = lives.join()
    member.start(failure_reason=lambda: reasons[0] if reasons else None)
    eventually(lambda: lives.beats() > 2)
    reasons.append("Spark's process has answered nothing for 20 s")
    eventually(lambda: lives.lost)
    for thread in member._threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert [str(error) for error in lives.lost] == [f"pipeline-1: {reasons[0]}"]
    member.stop_silently()
    assert not [message for message in world.heard if isinstance(message, Stopped)]
    assert world.nodes()["pipeline-1"].state == "alive"  # nobody has said otherwise: the monitors will


def test_a_monitor_vouches_while_its_loop_goes_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start("monitor-3")
    monitor = world._monitors["monitor-3"]._monitor
    world.pass_time(2)
    stands, goes_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        stands.set()
        goes_on.wait(PATIENCE_SECONDS)

    monitor._inbox.put(stand_still)
    assert stands.wait(PATIENCE_SECONDS)
    assert monitor.failure_reason() is None
    world.clock.now += 6 * TIMEOUT + 1
    assert monitor.failure_reason() == "the decision loop has been stalled for 36 s"
    goes_on.set()
    world.pass_time(1)
    assert monitor.failure_reason() is None


class Away:
    """A registry that takes no renewals."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def renew(self, *_lease: Any) -> bool:
        raise RegistryUnavailable("registry: away")


def test_a_member_whose_registry_is_away_still_beats(world: World, lives: Lives) -> None:
    member = lives.join(Away(world.registry))
    member.start()
    eventually(lambda: lives.beats() > 5)
    member.leave()
    assert lives.lost == []


def test_a_member_survives_what_nobody_expected(
    world: World, lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = lives.join()
    publish, failures = world.bus.publish, []

    def stumble(*message: Any) -> None:
        if len(failures) < 3:
            failures.append(message)
            raise KeyError("what is this")
        publish(*message)

    monkeypatch.setattr(world.bus, "publish", stumble)
    member.start()
    eventually(lambda: lives.beats() > 2)
    member.leave()
    assert (len(failures), lives.lost) == (3, [])


def test_a_member_does_not_wait_for_ever_to_say_goodbye(
    world: World, lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_back, called, has_returned = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        called.set()
        is_back.wait(PATIENCE_SECONDS)
        has_returned.set()

    member = lives.join()
    member.start()
    monkeypatch.setattr(membership, "_LEAVING_SECONDS", 0.05)
    monkeypatch.setattr(world.registry, "report_node", hang)
    member.leave()
    assert not has_returned.is_set()
    eventually(called.is_set)
    is_back.set()
    eventually(lambda: Stopped(node="pipeline-1", epoch=1) in world.heard)


# -- the command that revives


@pytest.mark.parametrize("command", ["kopi node start {nodes}", "start {}", "start 'one", "", "  "])
def test_a_command_that_cannot_be_is_refused_at_once(command: str) -> None:
    with pytest.raises(ConfigError, match=r"^monitor\.revive: "):
        Reviver(command, None, print)


def test_the_command_has_the_node_and_the_settings_put_in_as_single_words() -> None:
    reviver = Reviver("kopi node start {node} --config {config}", Path("/my settings/f.toml"), print)
    this_kopi = [sys.executable, "-m", "kopitiam"]
    assert reviver.argv("monitor-1") == [
        *this_kopi, "node", "start", "monitor-1", "--config", "/my settings/f.toml"
    ]  # fmt: skip
    assert Reviver("docker restart kopi-{node}", None, print).argv("a") == ["docker", "restart", "kopi-a"]


def test_a_fleet_whose_settings_are_all_in_the_environment_is_revived_without_a_file() -> None:
    reviver = Reviver(MonitorSection().revive, None, print)
    assert reviver.argv("monitor-1")[1:] == ["-m", "kopitiam", "node", "start", "monitor-1"]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("true", None),
        ("sh -c 'echo first; echo last >&2; exit 3'", "reviving monitor-1: exit code 3: last"),
        ("there-is-no-such-program", "reviving monitor-1: .*No such file"),
    ],
)
def test_whatever_becomes_of_the_command_its_end_is_told(
    command: str, complaint: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    reviver = Reviver(command, None, done.append)
    with caplog.at_level(logging.ERROR):
        reviver.revive("monitor-1")
        eventually(lambda: done)
    reviver.close()
    assert done == ["monitor-1"]
    assert len(caplog.messages) == (complaint is not None)
    assert complaint is None or caplog.messages[0].startswith(complaint.partition(".*")[0])


def test_a_node_is_not_revived_twice_at_once(tmp_path: Path) -> None:
    done: list[str] = []
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    reviver = Reviver(
        f"sh -c 'echo {{node}} >> {begun}; until [ -e {gate} ]; do sleep 0.01; done'", None, done.append
    )
    for node in ("one", "one", "other", "one"):
        reviver.revive(node)
    eventually(lambda: begun.exists() and len(begun.read_text().split()) == 2)
    gate.touch()
    eventually(lambda: len(done) == 2)
    assert sorted(done) == sorted(begun.read_text().split()) == ["one", "other"]
    reviver.close()


def test_commands_that_still_run_are_ended_with_the_monitor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    mark = tmp_path / "pid"
    reviver = Reviver(
        f"sh -c 'trap \"\" TERM; echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 1000'", None, done.append
    )
    reviver.revive("monitor-1")
    eventually(mark.exists)
    reviver.close()
    eventually(lambda: done == ["monitor-1"])
    assert not psutil.pid_exists(int(mark.read_text()))
    reviver.revive("monitor-2")
    assert done == ["monitor-1"]
    assert not [message for message in caplog.messages if message.startswith("reviving")]


# -- services


class Probed:
    """A watch over one service, asked every second whether it answers."""

    def __init__(self, patience_seconds: float = 0.0, revive_limit: int = 2) -> None:
        self.answers = True
        self.services = ["rabbitmq"]
        self.whereabouts: ServiceLocation | None = ServiceLocation(7, "amqp://127.0.0.1:5672")
        self.revived: list[float] = []
        self.now = 0.0
        self.watch = ServiceWatch(
            lambda: dict.fromkeys(self.services, lambda: self.answers),
            lambda _: self.whereabouts,
            lambda _: self.revived.append(self.now),
            every_seconds=BEAT,
            patience_seconds=patience_seconds,
            revive_limit=revive_limit,
        )

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.watch.probe_all(self.now)
            self.now += BEAT

    @property
    def state(self) -> str:
        [node] = self.watch.nodes(self.now)
        return node.state


def test_a_service_that_answers_is_left_alone() -> None:
    service = Probed()
    service.pass_time(500)
    assert (service.revived, service.state) == ([], "alive")


def test_a_service_that_misses_three_probes_is_revived() -> None:
    service = Probed()
    service.pass_time(10)
    service.answers = False
    service.pass_time(5)
    assert (service.revived, service.state) == ([12.0], "dead")
    service.watch.on_revived("rabbitmq", service.now)
    assert service.state == "starting"
    service.answers = True
    service.pass_time(30)
    assert (service.revived, service.state) == ([12.0], "alive")


def test_a_service_is_shown_with_its_process_and_its_address() -> None:
    service = Probed()
    service.pass_time(1)
    [node] = service.watch.nodes(service.now)
    assert (node.state, node.pid, node.url) == ("alive", 7, "amqp://127.0.0.1:5672")


def test_a_service_that_was_stopped_on_purpose_is_not_revived_and_lives_again_when_started() -> None:
    service = Probed()
    service.pass_time(10)
    service.answers, service.whereabouts = False, None
    service.pass_time(100)
    assert (service.revived, service.state) == ([], "stopped")
    service.answers, service.whereabouts = True, ServiceLocation(8)
    service.pass_time(1)
    assert (service.revived, service.state) == ([], "alive")


def test_a_watch_survives_what_nobody_expected() -> None:
    stopping, looks = threading.Event(), []

    def stumble() -> dict[str, Callable[[], bool]]:
        looks.append("look")
        if len(looks) == 3:
            stopping.set()
        raise KeyError("what is this")

    watch = ServiceWatch(
        stumble, lambda _: None, print, every_seconds=0.001, patience_seconds=0, revive_limit=1
    )
    watch.run(stopping)
    assert len(looks) == 3


def test_one_missed_probe_is_no_death() -> None:
    service = Probed()
    for _ in range(20):
        service.answers = not service.answers
        service.pass_time(2)
    assert service.revived == []


def test_monitors_differ_in_patience_so_that_one_of_them_does_it() -> None:
    first, second = Probed(), Probed(patience_seconds=3 * BEAT)
    for service in (first, second):
        service.pass_time(1)
        service.answers = False
        service.pass_time(4)
        service.answers = True  # the first one has brought it back
        service.pass_time(20)
    assert (first.revived, second.revived) == ([3.0], [])


def test_a_service_that_does_not_come_back_is_tried_a_few_times_and_then_a_person_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Probed(revive_limit=2)
    service.pass_time(1)
    service.answers = False
    service.pass_time(200)
    assert len(service.revived) == 2
    alarms = [message for message in caplog.messages if message.startswith("ALARM: rabbitmq: ")]
    assert len(alarms) == 1


def test_a_service_that_is_added_is_watched_and_one_that_is_taken_out_is_not_missed() -> None:
    service = Probed()
    service.pass_time(5)
    service.services = ["spark-worker-3"]
    service.pass_time(1)
    assert [node.name for node in service.watch.nodes(service.now)] == ["spark-worker-3"]
    service.answers = False
    service.pass_time(5)
    assert len(service.revived) == 1


# -- a fleet that grows


def test_a_node_that_is_added_is_watched_shown_and_revived(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, EVERYBODY)
    world.roster = NodesSection(gateways=("gateway-1", "gateway-2"))
    world.pass_time(3, (*EVERYBODY, "gateway-2"))
    assert world.nodes()["gateway-2"].state == "alive"
    world.pass_time_until(lambda: world.revived, EVERYBODY)
    assert world.revived == ["gateway-2"]


def test_a_node_that_is_taken_out_is_neither_shown_nor_revived(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(3, EVERYBODY)
    world.roster = NodesSection(gateways=())
    world.pass_time(3 * TIMEOUT, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert "gateway-1" not in world.nodes()
    assert not world.revived
