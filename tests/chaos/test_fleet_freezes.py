"""Frozen nodes and a busy machine: a replaced process exits without effect when it resumes, and slow nodes
are not replaced.
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
RESUMING_SECONDS = 30
NODES = ("gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3")
only_in_full = pytest.mark.skipif(not IS_FULL, reason="only with KOPI_TEST_FULL")


def resume(fleet: Fleet, frozen: StruckNode) -> None:
    """Resume a frozen process, which must find its epoch stale, log that and exit."""
    size_before = len(fleet.log(frozen.name))
    os.kill(frozen.pid, signal.SIGCONT)
    begun = time.monotonic()
    code = fleet.exit_code(frozen.pid, RESUMING_SECONDS)
    fleet.note(f"{frozen.name}: the resumed process exited after {time.monotonic() - begun:.1f} s")
    log = fleet.log(frozen.name)[size_before:]
    assert code == 1, log
    assert re.search(r"^kopi: .*epoch \d+ is stale$", log, re.MULTILINE), log


@pytest.mark.rare
def test_a_frozen_pipeline_that_resumes_after_its_replacement_counts_nothing_twice(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    old = fleet.pids_of("pipeline-1")
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        frozen = fleet.kill("pipeline-1", signal.SIGSTOP)
        recovery = fleet.await_recovery(frozen)
        due = upload.sent
        fleet.wait(lambda: fleet.processed(upload.run) >= due, "processing the upload")
        resume(fleet, frozen)
    assert not old & fleet.pids_of("pipeline-1"), fleet.status_text()
    assert fleet.pid_of("pipeline-1") == recovery.pid, fleet.status_text()
    assert set(observer.states("pipeline-1")) <= {"alive", "dead", "starting"}, (
        "it was never recorded as stopped"
    )
    assert observer.violations() == []


@only_in_full
def test_a_pipeline_whose_spark_is_frozen_exits_and_is_revived(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        pipeline = fleet.victims.aim("pipeline-1", alone=True)
        (spark,) = [process for process in fleet.victims.processes("pipeline-1") if "java" in process.name()]
        spark.suspend()
        fleet.await_recovery(pipeline)
        due = upload.sent
        fleet.wait(lambda: fleet.processed(upload.run) >= due, "processing the upload")
        assert fleet.exit_code(pipeline.pid, RESUMING_SECONDS) == 3
        assert not spark.is_running()
    assert "Spark's process has answered nothing for" in fleet.log("pipeline-1")
    assert observer.violations() == []


@only_in_full
def test_a_frozen_leader_that_resumes_after_its_replacement_does_not_lead(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path
) -> None:
    with submitting(fleet, small_folder):
        frozen = fleet.kill("monitor-3", signal.SIGSTOP)
        recovery = fleet.await_recovery(frozen)
        fleet.await_whole()
        resume(fleet, frozen)
    fleet.await_whole()
    assert fleet.pid_of("monitor-3") == recovery.pid, fleet.status_text()
    assert observer.leaders() == ["monitor-3", "monitor-2", "monitor-3"], fleet.status_text()
    assert observer.violations() == []


@only_in_full
def test_a_leader_that_resumes_before_its_replacement_leads_under_a_new_epoch(
    fleet: Fleet, observer: RegistryObserver
) -> None:
    pids = fleet.pids()
    frozen = fleet.kill("monitor-3", signal.SIGSTOP)
    fleet.wait(lambda: observer.leaders()[-1] == "monitor-2", "led by monitor-2")
    fleet.note(f"monitor-2: leads after {time.monotonic() - frozen.at:.1f} s")
    os.kill(frozen.pid, signal.SIGCONT)
    fleet.wait(lambda: observer.leaders()[-1] == "monitor-3", "led by monitor-3 again")
    fleet.await_whole()
    assert fleet.pids() == pids, fleet.status_text()
    assert observer.leaders() == ["monitor-3", "monitor-2", "monitor-3"], fleet.status_text()
    assert observer.violations() == []


@only_in_full
def test_a_frozen_gateway_is_killed_and_replaced_on_its_port(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers"):
        frozen = fleet.kill("gateway-1", signal.SIGSTOP)
        fleet.await_recovery(frozen)
        assert fleet.exit_code(frozen.pid, RESUMING_SECONDS) == -signal.SIGKILL
    assert observer.violations() == []


@pytest.mark.long
def test_a_busy_machine_causes_no_election_and_no_revival(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    with trickling(fleet, small_folder, tmp_path / "answers"), all_cores_busy():
        time.sleep(BUSY_SECONDS)
    assert fleet.pids() == pids, fleet.status_text()
    assert {state for name in pids for state in observer.states(name)} == {"alive"}, fleet.status_text()
    assert {name: len(observer.epochs(name)) for name in (*NODES, "leader")} == dict.fromkeys(
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
