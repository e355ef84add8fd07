"""The registry observer: the history that it records, and the violations that it finds."""

import contextlib
import subprocess
import sys

import pytest
from sqlalchemy import update

from kopitiam.contracts.config import Settings
from kopitiam.contracts.messages import NodeRecord
from kopitiam.fleet.home import FleetHome
from kopitiam.registry.engine import connect_engine
from kopitiam.registry.registry import open_registry
from kopitiam.registry.schema import leases
from kopitiam_chaos.observer import RegistryObserver
from waiting import eventually

RUN = "a" * 24
REVIVAL = (1, "revives", "pipeline-1")


@pytest.fixture
def settings(tmp_path):
    return Settings(home=tmp_path)


@pytest.fixture
def registry(settings):
    with contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry:
        yield registry


def lead(registry, rank, holder):
    return registry.take_over_if_higher("leader", rank, holder, 60)


def report(registry, name, epoch=1, state="alive", leader=False):
    registry.report_node(NodeRecord(name, "monitor", 7, None, state, 0.0, epoch, leader=leader))


def change(settings, **values):
    """Write values into the leader's lease that the registry itself would not write."""
    engine = connect_engine(settings.registry.url, settings.home)
    with engine.begin() as connection:
        connection.execute(update(leases).where(leases.c.name == "leader").values(**values))
    engine.dispose()


def test_every_leader_is_recorded_with_its_epoch(registry, settings):
    lead(registry, 1, "one")
    with RegistryObserver(settings) as observer:
        lead(registry, 3, "three")
        eventually(lambda: len(observer.leaders_by_epoch()) == 2)
        registry.release("leader", "000003 three", 2)
        eventually(lambda: observer.epochs("leader") == [1, 2, 2])
        lead(registry, 2, "two")
        eventually(lambda: len(observer.leaders_by_epoch()) == 3)
    assert observer.leaders() == ["monitor-1", "monitor-3", "monitor-2"]
    assert observer.leaders_by_epoch() == {1: ("monitor-1",), 2: ("monitor-3",), 3: ("monitor-2",)}
    assert observer.violations() == []


def test_two_leaders_in_one_epoch_are_a_violation(registry, settings):
    lead(registry, 3, "three")
    with RegistryObserver(settings) as observer:
        change(settings, holder="000002 two")
        eventually(lambda: observer.leaders_by_epoch() == {1: ("monitor-3", "monitor-2")})
    assert [text.partition(": [")[0] for text in observer.violations()] == [
        "leader: an epoch with two holders"
    ]


def test_a_decreasing_epoch_is_a_violation(registry, settings):
    lead(registry, 1, "one")
    lead(registry, 3, "three")
    with RegistryObserver(settings) as observer:
        change(settings, epoch=1)
        eventually(lambda: observer.epochs("leader") == [2, 1])
    assert [flaw.partition(": [")[0] for flaw in observer.violations()] == ["leader: an epoch that went back"]


def act(settings, monitor, action, as_json=False):
    """Append a leader action to a monitor's log, formatted as the monitor itself does."""
    log = FleetHome(settings.home).log(monitor)
    log.parent.mkdir(exist_ok=True)
    code = f"""
from kopitiam.cli.process import set_up_logs
from kopitiam.supervision.actions import log_action
set_up_logs({monitor!r}, is_verbose=False, as_json={as_json})
log_action(*{action!r})
"""
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True)


def test_actions_of_leaders_are_read_from_their_logs(registry, settings):
    act(settings, "monitor-3", REVIVAL)  # before the observer started
    lead(registry, 3, "three")
    with RegistryObserver(settings) as observer:
        act(settings, "monitor-3", REVIVAL, as_json=True)
        act(settings, "monitor-3", (1, "opens barrier of", RUN))
        assert observer.actions_by_epoch() == {1: {"monitor-3": 2}}
    assert observer.violations() == []


def test_two_monitors_that_act_under_one_epoch_are_a_violation(registry, settings):
    lead(registry, 3, "three")
    with RegistryObserver(settings) as observer:
        act(settings, "monitor-3", REVIVAL)
        act(settings, "monitor-2", (1, "force-ends", RUN))
    assert observer.violations() == [
        "leader: two monitors acted under epoch 1: {'monitor-2': 1, 'monitor-3': 1}",
        "leader: monitor-2 acted under epoch 1 of ('monitor-3',)",
    ]


def test_runs_under_way_are_listed_with_their_states(registry, settings):
    def open_run():
        return registry.open_run({}, "", "me", idempotency_key=None, lease_seconds=60, shards=1).run.run

    opened = [open_run(), open_run()]
    with RegistryObserver(settings) as observer:
        assert observer.runs_under_way == dict.fromkeys(opened, "open")
        registry.force_end(opened[0], "enough")
        eventually(lambda: observer.runs_under_way == {opened[1]: "open"})


def test_states_and_pids_of_nodes_are_recorded(registry, settings):
    report(registry, "monitor-1", leader=True)
    with RegistryObserver(settings) as observer:
        assert observer.leader == "monitor-1"
        report(registry, "monitor-1", state="dead")
        eventually(lambda: observer.states("monitor-1") == ["alive", "dead"])
        assert observer.leader is None
        assert observer.nodes["monitor-1"].state == "dead"
        assert observer.pids("monitor-1") == {7}


def test_an_unreachable_registry_gives_an_empty_history(tmp_path):
    unreachable = Settings(registry={"url": "postgresql://nobody@127.0.0.1:9/none"}, home=tmp_path)
    with RegistryObserver(unreachable) as observer:
        assert (observer.nodes, observer.leader, observer.violations()) == ({}, None, [])
