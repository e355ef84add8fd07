"""What surrounds the machines: the monitor, a node's membership, the command that revives, and the watch over
services.
"""

import contextlib
import logging
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monitor_world import BEAT, NODES, TIMEOUT, Clock, World, until

from kopitiam.contracts.config import MonitorSection, NodesSection
from kopitiam.contracts.errors import ConfigError, RegistryUnavailable, StaleEpoch
from kopitiam.contracts.messages import HEARTBEAT_TOPIC, Coordinator, Election, Heartbeat, Stopped
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.registry import Registry
from kopitiam.supervision.membership import Membership, Place
from kopitiam.supervision.monitor import LEASE
from kopitiam.supervision.reviver import Reviver
from kopitiam.supervision.services import ServiceWatch

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
    assert world.registry.holds(LEASE, 1)


def test_a_higher_one_takes_over_and_the_lower_one_stays_quiet(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, EVERYBODY)
    world.start("monitor-3")
    world.pass_time_until(lambda: world.leader() == ("monitor-3", 2), EVERYBODY)
    world.pass_time(3, EVERYBODY)
    world.forget_heard()
    world.pass_time(3 * TIMEOUT, EVERYBODY)
    assert {message.sender for message in world.heard if isinstance(message, Coordinator)} == {3}
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
    world.registry.enlist("monitor-1", "a new life", 1e6)
    world.pass_time_until(lambda: sum(isinstance(message, Election) for message in world.heard) > 2)
    assert world.leader() is None
    assert world.registry.outrank(LEASE, 1, "a new life", 10) == 1


# -- what the leader decides


def test_a_dead_node_is_revived_once_and_shown_as_dead(world: World) -> None:
    alive = tuple(name for name in EVERYBODY if name != "pipeline-1")
    world.start("monitor-3")
    world.pass_time_until(world.leader, EVERYBODY)
    world.pass_time(2, EVERYBODY)
    world.pass_time(TIMEOUT + 2, alive)
    assert world.revived == ["pipeline-1"]
    assert {name: node.state for name, node in world.nodes().items()} == {
        name: "alive" if name in alive else "dead" for name in EVERYBODY
    }


def test_a_leader_whose_epoch_is_over_revives_nobody(world: World) -> None:
    world.start("monitor-1")
    world.pass_time_until(world.leader, ("monitor-1",))
    world.pass_time(TIMEOUT - 2, ("monitor-1",))
    assert world.registry.outrank(LEASE, 3, "somebody", 1e6) == 2
    world.forget_heard()
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert [message for message in world.heard if isinstance(message, Election)]
    assert not [message for message in world.heard if isinstance(message, Coordinator)]
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
            self._registry.outrank(LEASE, 3, "somebody", 1e6)
        return is_renewed


def test_a_leader_that_is_overtaken_between_looking_and_deciding_revives_nobody(world: World) -> None:
    registry = Overtaken(world.registry, world.clock)
    world.start("monitor-1", registry)
    world.pass_time_until(lambda: "pipeline-1" in world.nodes(), ("monitor-1",))
    registry.at = world.nodes()["pipeline-1"].since + TIMEOUT
    world.pass_time(3 * TIMEOUT, ("monitor-1",))
    assert world.registry.holds(LEASE, 2)
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
    world.bus.publish(HEARTBEAT_TOPIC, Stopped(node="gateway-1", epoch=1))
    world.pass_time(3 * TIMEOUT, tuple(name for name in EVERYBODY if name != "gateway-1"))
    assert (world.revived, world.nodes()["gateway-1"].state) == ([], "stopped")


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


# -- membership


class Lives:
    """Memberships of nodes that beat often."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lost: list[StaleEpoch] = []

    def join(self, registry: Any = None) -> Membership:
        pace = MonitorSection(heartbeat_seconds=0.01, timeout_seconds=TIMEOUT)
        place = Place("pipeline-1", "pipeline", registry or self._world.registry, self._world.bus, pace)
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
    until(lambda: lives.beats() > 2)
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].url) == ("alive", "http://here")
    world.clock.now += TIMEOUT + 1
    until(lambda: world.registry.holds("pipeline-1", 1))
    member.leave()
    until(lambda: Stopped(node="pipeline-1", epoch=1) in world.heard)
    assert world.nodes()["pipeline-1"].state == "stopped"
    assert not world.registry.holds("pipeline-1", 1)
    assert lives.lost == []


def test_a_member_whose_place_was_taken_is_told_once_and_leaves_without_a_word(
    world: World, lives: Lives
) -> None:
    old = lives.join()
    old.start()
    new = lives.join()
    new.start()
    until(lambda: lives.lost)
    beats = lives.beats(epoch=1)
    until(lambda: lives.beats(epoch=2) > 20)
    old.leave()
    assert [str(error) for error in lives.lost] == [
        "pipeline-1: another process has taken its place; epoch 1 is over"
    ]
    assert lives.beats(epoch=1) <= beats + 1
    assert (world.nodes()["pipeline-1"].state, world.nodes()["pipeline-1"].epoch) == ("alive", 2)
    new.leave()
    until(lambda: [message for message in world.heard if isinstance(message, Stopped)])
    assert [message.epoch for message in world.heard if isinstance(message, Stopped)] == [2]


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
    until(lambda: lives.beats() > 5)
    member.leave()
    assert lives.lost == []


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
        until(lambda: done)
    reviver.close()
    assert done == ["monitor-1"]
    assert len(caplog.messages) == (complaint is not None)
    assert complaint is None or caplog.messages[0].startswith(complaint.partition(".*")[0])


# -- services


class Probed:
    """A watch over one service, asked every second whether it answers."""

    def __init__(self, patience_seconds: float = 0.0, revive_limit: int = 2) -> None:
        self.answers = True
        self.services = ["rabbitmq"]
        self.revived: list[float] = []
        self.now = 0.0
        self.watch = ServiceWatch(
            lambda: dict.fromkeys(self.services, lambda: self.answers),
            lambda _: self.revived.append(self.now),
            every_seconds=BEAT,
            patience_seconds=patience_seconds,
            revive_limit=revive_limit,
        )

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.watch.look(self.now)
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
