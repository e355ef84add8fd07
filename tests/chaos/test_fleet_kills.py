"""Nodes and services are killed or stopped during uploads: the monitors revive killed nodes, not stopped
ones, and the answers are exact.
"""

import contextlib
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
from clients import submitting, trickling
from fleets import BEAT_SECONDS, TIMEOUT_SECONDS, Fleet

from kopitiam.client.client import Client
from kopitiam.runtime.home import exclusive_home
from kopitiam_chaos.observer import RegistryObserver
from kopitiam_chaos.strikes import StruckNode
from sampling import IS_FULL
from trees import paths_below
from trickle import check_answers

NODES = ("gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3")
VICTIMS = NODES if IS_FULL else ("gateway-1", "pipeline-1", "monitor-3")
EXIT_SECONDS = 20
LONG_ENOUGH_TO_REVIVE = TIMEOUT_SECONDS + 3 * BEAT_SECONDS
CLEANUP_SECONDS = 30


@pytest.mark.long
def test_an_upload_survives_the_kill_of_every_node(
    fleet: Fleet, observer: RegistryObserver, tiny_folder: Path, small_folder: Path, tmp_path: Path
) -> None:
    with (
        trickling(fleet, tiny_folder, tmp_path / "trickle") as upload,
        submitting(fleet, small_folder) as runs,
    ):
        for name in VICTIMS:
            before = fleet.pids_of(name)
            recovery = fleet.await_recovery(fleet.kill(name))
            assert not before & fleet.pids_of(name), f"an old process is left; {recovery}"
            fleet.await_whole()
            due = upload.sent
            fleet.wait(lambda due=due: fleet.processed(upload.run) >= due, "processing the upload")
    fleet.note(f"answered meanwhile: {len(runs)} runs")
    process_counts = {name: len(observer.pids(name)) for name in NODES}
    assert process_counts == {name: 2 if name in VICTIMS else 1 for name in NODES}, fleet.status_text()
    first, *between, last = observer.leaders()
    assert (first, last) == ("monitor-3", "monitor-3"), fleet.status_text()
    assert between, "another monitor led while the leader was dead"
    assert fleet.leaders() == ["monitor-3"], fleet.status_text()
    assert observer.violations() == []


@pytest.mark.long
def test_rabbitmq_killed_at_the_end_of_an_upload_is_revived_and_no_other_node_is(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        struck = fleet.kill("rabbitmq")
        upload.may_finish.set()
        recovery = fleet.await_recovery(struck)
    fleet.await_whole()
    assert fleet.pids() == pids | {"rabbitmq": recovery.pid}, fleet.status_text()
    assert {state for name in NODES for state in observer.states(name)} == {"alive"}, fleet.status_text()
    assert observer.leaders() == ["monitor-3"]
    assert observer.violations() == []


@pytest.mark.long
def test_postgresql_killed_at_the_end_of_an_upload_is_revived_and_the_upload_finishes(
    fleet: Fleet, observer: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        struck = fleet.kill("postgresql")
        upload.may_finish.set()
        fleet.await_recovery(struck)
    fleet.await_whole()
    assert observer.violations() == []


@pytest.mark.long
def test_nodes_stopped_by_sigterm_exit_at_once_and_are_not_revived_by_a_new_leader(
    fleet: Fleet, observer: RegistryObserver
) -> None:
    stopped = ("gateway-1", "monitor-3")
    epochs = [fleet.nodes()[name].epoch for name in stopped]
    strikes = [stop_by_sigterm(fleet, name) for name in stopped]
    fleet.wait(lambda: fleet.leaders() == ["monitor-2"], "led by monitor-2")
    fleet.note(f"monitor-2: leads after {time.monotonic() - strikes[-1].at:.1f} s")
    time.sleep(LONG_ENOUGH_TO_REVIVE)
    for name in stopped:
        assert (fleet.nodes()[name].state, fleet.pid_of(name)) == ("stopped", None), fleet.status_text()
    fleet.start(*stopped)
    fleet.await_whole()
    assert [fleet.nodes()[name].epoch for name in stopped] == [epoch + 1 for epoch in epochs]
    assert "dead" not in {state for name in NODES for state in observer.states(name)}, fleet.status_text()
    assert observer.violations() == []


@pytest.mark.long
def test_runs_cancelled_while_the_pipeline_is_stopped_are_never_processed(
    fleet: Fleet, small_folder: Path, tmp_path: Path
) -> None:
    struck = stop_by_sigterm(fleet, "pipeline-1")
    with Client(fleet.url) as client:
        one, *others = runs = [client.submit(small_folder).id for _ in range(3)]
    cancel = ("--server", fleet.url, "--json")
    assert fleet.kopi("cancel", one, *cancel)["state"] == "ended"
    ended = fleet.kopi("cancel", "--all", *cancel)
    assert {run["run"]: run["state"] for run in ended} == dict.fromkeys(others, "ended")
    time.sleep(max(0.0, struck.at + LONG_ENOUGH_TO_REVIVE - time.monotonic()))
    assert (fleet.nodes()[struck.name].state, fleet.pid_of(struck.name)) == ("stopped", None), (
        fleet.status_text()
    )

    fleet.start("pipeline-1")

    fleet.submit(small_folder, tmp_path / "answers")
    check_answers(small_folder, tmp_path / "answers")
    assert [fleet.processed(run) for run in runs] == [0, 0, 0]
    took = fleet.wait(
        lambda: not [path for path in paths_below(fleet.home) if any(run in path.name for run in runs)],
        "removing the files of the cancelled runs",
        CLEANUP_SECONDS,
    )
    fleet.note(f"pipeline-1: files of the cancelled runs removed after {took:.1f} s")


@pytest.mark.long
def test_a_stopped_fleet_leaves_no_process_port_lock_or_record(fleet: Fleet) -> None:
    ports = listening_ports(fleet.processes())
    assert len(ports) >= len(("gateway", "postgresql", "rabbitmq"))

    assert set(fleet.down()) == set(fleet.kinds)

    assert fleet.processes() == []
    assert [port for port in ports if not is_free(port)] == []
    with exclusive_home(fleet.home):  # fails if a process still holds it
        left = {path.name for name in ("*.lock", "*.pid", "lock", "nodes") for path in fleet.home.rglob(name)}
        assert left == {"serve.lock"}


def stop_by_sigterm(fleet: Fleet, name: str) -> StruckNode:
    struck = fleet.kill(name, signal.SIGTERM)
    assert fleet.exit_code(struck.pid, EXIT_SECONDS) == 0, fleet.log(name)
    fleet.note(f"{name}: exited after {time.monotonic() - struck.at:.1f} s")
    return struck


def listening_ports(processes: list[psutil.Process]) -> set[int]:
    ports = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sockets = process.net_connections("tcp")
            ports |= {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
