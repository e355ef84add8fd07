"""Processes that are hurt, with their children, and what is seen of them; small real ones, of no use."""

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
    made = Fleet(Settings(home=tmp_path / "home"))
    made.home.make()
    yield made
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


def hurt(victims, number, *, alone=False):
    loss = victims.aim("pipeline-1", alone=alone)
    victims.send(loss, number)
    return loss


def known(state, pid):
    return {"pipeline-1": NodeRecord("pipeline-1", "pipeline", pid, None, state, 0.0, 1)}


def test_a_node_is_killed_with_all_its_processes(fleet, node):
    victims = Victims(fleet)
    family = victims.processes("pipeline-1")
    loss = hurt(victims, signal.SIGKILL)
    assert loss.pid == node.pid
    eventually(lambda: all(process_state(process) == "gone" for process in family))
    assert victims.pid_of("pipeline-1") is None


def test_alone_means_that_its_children_are_spared(fleet, node):
    victims = Victims(fleet)
    child = next(each for each in victims.processes("pipeline-1") if each.pid != node.pid)
    loss = hurt(victims, signal.SIGKILL, alone=True)
    assert [process.pid for process in loss.processes] == [node.pid]
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    assert process_state(child) == "running"


def test_a_frozen_one_is_not_well_and_is_when_it_was_woken(fleet, node):
    victims = Victims(fleet)
    nodes = known("alive", node.pid)
    assert victims.is_healthy("pipeline-1", nodes)
    hurt(victims, signal.SIGSTOP)
    eventually(lambda: not victims.is_healthy("pipeline-1", nodes))
    assert victims.pid_of("pipeline-1") == node.pid
    hurt(victims, signal.SIGCONT)
    eventually(lambda: victims.is_healthy("pipeline-1", nodes))


def test_it_is_noticed_when_it_is_declared_dead_or_a_new_process_stands_for_it(fleet, node):
    victims = Victims(fleet)
    loss = hurt(victims, signal.SIGKILL)
    assert not victims.is_noticed(loss, known("alive", node.pid))
    assert not victims.is_noticed(loss, {})
    assert victims.is_noticed(loss, known("dead", node.pid))
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    start(fleet)
    assert victims.is_noticed(loss, {})


def test_it_is_replaced_when_the_new_process_has_said_that_it_lives(fleet, node):
    victims = Victims(fleet)
    loss = hurt(victims, signal.SIGKILL)
    eventually(lambda: victims.pid_of("pipeline-1") is None)
    assert not victims.is_replaced(loss, known("alive", node.pid))
    new = start(fleet)
    assert not victims.is_replaced(loss, known("alive", node.pid)), "that was the old one"
    assert not victims.is_replaced(loss, known("starting", new.pid))
    assert victims.is_replaced(loss, known("alive", new.pid))


def test_one_that_does_not_run_cannot_be_hurt(fleet):
    with pytest.raises(ServiceError, match="gateway-1 does not run"):
        Victims(fleet).aim("gateway-1")


def test_one_that_ends_between_two_looks_is_not_well(fleet, node, monkeypatch):
    def last_look(process):
        found = process_state(process)
        node.child.kill()
        node.child.wait()
        return found

    for module in (processes, strikes):
        monkeypatch.setattr(module, "process_state", last_look)
    assert not Victims(fleet).is_healthy("pipeline-1", known("alive", node.pid))


def test_all_that_are_not_well_are_ailing(fleet, node):
    unhealthy = Victims(fleet).unhealthy(known("alive", node.pid))
    assert unhealthy == ["gateway-1", "monitor-1", "monitor-2", "monitor-3"]


def test_a_number_that_went_to_another_process_is_spared(fleet):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        old = psutil.Process(other.pid)
        old._ident = (other.pid, 1.0)  # as if it had been another one
        Victims(fleet).send(StruckNode("pipeline-1", old.pid, 0.0, (old,)), signal.SIGKILL)
        assert other.poll() is None
        other.kill()
