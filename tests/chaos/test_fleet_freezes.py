"""Nodes that stand still for a while, and a machine so busy that they might as well: who was replaced does
no harm when it wakes, and nobody is replaced for being slow.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import submitting, trickling
from fleets import Fleet

from kopitiam_chaos.observer import RegistryObserver
from kopitiam_chaos.strikes import StruckNode
from sampling import IS_FULL

BUSY_SECONDS = 60 if IS_FULL else 20
WAKING_SECONDS = 30
NODES = ("gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3")
only_in_full = pytest.mark.skipif(not IS_FULL, reason="only with KOPI_TEST_FULL")


def wake(fleet: Fleet, frozen: StruckNode) -> None:
    """It finds out by itself that it was replaced, says so, and leaves."""
    said_before = len(fleet.log(frozen.name))
    os.kill(frozen.pid, signal.SIGCONT)
    begun = time.monotonic()
    code = fleet.exit_code(frozen.pid, WAKING_SECONDS)
    fleet.tell(f"{frozen.name}: the one that woke left after {time.monotonic() - begun:.1f} s")
    words = fleet.log(frozen.name)[said_before:]
    assert code == 1, words
    assert re.search(r"^kopi: .*epoch \d+ is stale$", words, re.MULTILINE), words


def test_a_frozen_pipeline_wakes_after_it_was_replaced_and_nothing_is_counted_twice(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    old = fleet.pids_of("pipeline-1")
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        frozen = fleet.kill("pipeline-1", signal.SIGSTOP)
        back = fleet.await_return(frozen)
        due = upload.sent
        fleet.wait(lambda: fleet.processed(upload.run) >= due, "getting on with the upload")
        wake(fleet, frozen)
    assert not old & fleet.pids_of("pipeline-1"), fleet.story()
    assert fleet.pid_of("pipeline-1") == back.pid, fleet.story()
    assert set(witness.states("pipeline-1")) <= {"alive", "dead", "starting"}, "it never left on purpose"
    assert witness.violations() == []


@only_in_full
def test_a_pipeline_whose_spark_stands_still_leaves_and_is_revived_without_it(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        pipeline = fleet.victims.aim("pipeline-1", alone=True)
        (spark,) = [process for process in fleet.victims.processes("pipeline-1") if "java" in process.name()]
        spark.suspend()
        fleet.await_return(pipeline)
        due = upload.sent
        fleet.wait(lambda: fleet.processed(upload.run) >= due, "getting on with the upload")
        assert fleet.exit_code(pipeline.pid, WAKING_SECONDS) == 3
        assert not spark.is_running()
    assert "Spark's process has answered nothing for" in fleet.log("pipeline-1")
    assert witness.violations() == []


@only_in_full
def test_a_frozen_leader_wakes_after_it_was_replaced_and_leads_no_more(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path
) -> None:
    with submitting(fleet, small_folder):
        frozen = fleet.kill("monitor-3", signal.SIGSTOP)
        back = fleet.await_return(frozen)
        fleet.await_whole()
        wake(fleet, frozen)
    fleet.await_whole()
    assert fleet.pid_of("monitor-3") == back.pid, fleet.story()
    assert witness.leaders() == ["monitor-3", "monitor-2", "monitor-3"], fleet.story()
    assert witness.violations() == []


@only_in_full
def test_a_leader_that_wakes_before_it_was_replaced_leads_again_under_a_new_epoch(
    fleet: Fleet, witness: RegistryObserver
) -> None:
    pids = fleet.pids()
    frozen = fleet.kill("monitor-3", signal.SIGSTOP)
    fleet.wait(lambda: witness.leaders()[-1] == "monitor-2", "led by the next one")
    fleet.tell(f"monitor-2: leads after {time.monotonic() - frozen.at:.1f} s")
    os.kill(frozen.pid, signal.SIGCONT)
    fleet.wait(lambda: witness.leaders()[-1] == "monitor-3", "led by the highest again")
    fleet.await_whole()
    assert fleet.pids() == pids, fleet.story()
    assert witness.leaders() == ["monitor-3", "monitor-2", "monitor-3"], fleet.story()
    assert witness.violations() == []


@only_in_full
def test_a_frozen_gateway_makes_way_for_another_on_its_port(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers"):
        frozen = fleet.kill("gateway-1", signal.SIGSTOP)
        fleet.await_return(frozen)
        assert fleet.exit_code(frozen.pid, WAKING_SECONDS) == -signal.SIGKILL
    assert witness.violations() == []


def test_nobody_is_elected_or_revived_because_the_machine_is_busy(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    with trickling(fleet, small_folder, tmp_path / "answers"), all_cores_busy():
        time.sleep(BUSY_SECONDS)
    assert fleet.pids() == pids, fleet.story()
    assert {state for name in pids for state in witness.states(name)} == {"alive"}, fleet.story()
    assert {name: len(witness.epochs(name)) for name in (*NODES, "leader")} == dict.fromkeys(
        (*NODES, "leader"), 1
    )


@contextlib.contextmanager
def all_cores_busy() -> Iterator[None]:
    busy = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(busy) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
