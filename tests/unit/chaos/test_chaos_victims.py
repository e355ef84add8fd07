"""Signals to the processes of a node, and its observed state, with small real processes."""

import contextlib
import signal
import subprocess
import sys

import psutil
import pytest

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.messages import NodeRecord
from kopitiam.fleet import processes
from kopitiam.fleet.lifecycle import Fleet
from kopitiam.fleet.processes import NODE_VARIABLE, Program, launch, process_state
from kopitiam_chaos import strikes
from kopitiam_chaos.strikes import StruckNode, Victims
from waiting import eventually

WITH_A_CHILD = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "time.sleep(60)"
)


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(Settings(home=tmp_path / "home"))
    fleet.home.make()
    yield fleet
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(NODE_VARIABLE, "").startswith(str(tmp_path)):
                process.kill()


@pytest.fixture
def node(fleet):
    """A pipeline with a child of its own."""
    return start(fleet)


def start(fleet):
    program = Program("pipeline-1", "pipeline", lambda: (sys.executable, "-c", WITH_A_CHILD))
    launched = launch(fleet.home, program)
    eventually(lambda: len(Victims(fleet).processes("pipeline-1")) >= 2)
    return launched


def strike(victims, number, *, alone=False):
    struck = victims.aim("pipeline-1", alone=alone)
    victims.send(struck, number)
    return struck


def records(state, pid):
    return {"pipeline-1": NodeRecord("pipeline-1", "pipeline", pid, None, state, 0.0, 1)}


def test_a_node_is_killed_with_all_its_processes(fleet, node):
    victims = Victims(fleet)
    family = victims.processes("pipeline-1")
    struck = strike(victims, signal.SIGKILL)
    assert struck.pid == node.pid
    eventually(lambda: all(process_state(process) == "gone" for process in family))
    assert victims.pid_of("pipeline-1") is None


def test_alone_leaves_the_children_running(fleet, node):
    victims = Victims(fleet)
    child = next(each for each in victims.processes("pipeline-1") if each.pid != node.pid)
    struck = strike(victims, signal.SIGKILL, alone=True)
    assert [process.pid for process in struck.processes] == [node.pid]
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    assert process_state(child) == "running"


def test_a_frozen_node_is_unhealthy_until_it_is_resumed(fleet, node):
    victims = Victims(fleet)
    nodes = records("alive", node.pid)
    assert victims.is_healthy("pipeline-1", nodes)
    strike(victims, signal.SIGSTOP)
    eventually(lambda: not victims.is_healthy("pipeline-1", nodes))
    assert victims.pid_of("pipeline-1") == node.pid
    strike(victims, signal.SIGCONT)
    eventually(lambda: victims.is_healthy("pipeline-1", nodes))


def test_a_strike_is_noticed_when_the_node_is_declared_dead_or_has_a_new_process(fleet, node):
    victims = Victims(fleet)
    struck = strike(victims, signal.SIGKILL)
    assert not victims.is_noticed(struck, records("alive", node.pid))
    assert not victims.is_noticed(struck, {})
    assert victims.is_noticed(struck, records("dead", node.pid))
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    start(fleet)
    assert victims.is_noticed(struck, {})


def test_a_node_is_replaced_when_its_new_process_is_reported_alive(fleet, node):
    victims = Victims(fleet)
    struck = strike(victims, signal.SIGKILL)
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    assert not victims.is_replaced(struck, records("alive", node.pid))
    new = start(fleet)
    assert not victims.is_replaced(struck, records("alive", node.pid)), "the record is of the old process"
    assert not victims.is_replaced(struck, records("starting", new.pid))
    assert victims.is_replaced(struck, records("alive", new.pid))


def test_a_node_that_does_not_run_cannot_be_struck(fleet):
    with pytest.raises(ServiceError, match="gateway-1 does not run"):
        Victims(fleet).aim("gateway-1")


def test_a_node_that_ends_between_two_checks_is_unhealthy(fleet, node, monkeypatch):
    def state_before_exit(process):
        state = process_state(process)
        node.child.kill()
        node.child.wait()
        return state

    for module in (processes, strikes):
        monkeypatch.setattr(module, "process_state", state_before_exit)
    assert not Victims(fleet).is_healthy("pipeline-1", records("alive", node.pid))


def test_nodes_without_a_process_are_unhealthy(fleet, node):
    unhealthy = Victims(fleet).unhealthy(records("alive", node.pid))
    assert unhealthy == ["gateway-1", "monitor-1", "monitor-2", "monitor-3"]


def test_a_process_that_reuses_the_pid_gets_no_signal(fleet):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        old = psutil.Process(other.pid)
        old._ident = (other.pid, 1.0)  # as if the pid had belonged to an earlier process
        Victims(fleet).send(StruckNode("pipeline-1", old.pid, 0.0, (old,)), signal.SIGKILL)
        assert other.poll() is None
        other.kill()
