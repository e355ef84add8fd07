"""Nodes and services are killed, told to leave, and stopped under the hands of clients: who was killed is
brought back by the monitors, who left is not, and the answers are exact.
"""

import contextlib
import signal
import socket
import time
from pathlib import Path

import psutil
from clients import check_answers, submitting, trickling
from fleets import BEAT_SECONDS, TIMEOUT_SECONDS, Fleet

from kopitiam.client.client import Client
from kopitiam.runtime.home import exclusive_home
from kopitiam_chaos.observer import RegistryObserver
from kopitiam_chaos.strikes import StruckNode
from sampling import IS_FULL
from trees import paths_below

NODES = ("gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3")
VICTIMS = NODES if IS_FULL else ("gateway-1", "pipeline-1", "monitor-3")
LEAVING_SECONDS = 20
LONG_ENOUGH_TO_REVIVE = TIMEOUT_SECONDS + 3 * BEAT_SECONDS
TIDY_SECONDS = 30


def test_an_upload_outlives_every_node_that_is_killed_meanwhile(
    fleet: Fleet, witness: RegistryObserver, tiny_folder: Path, small_folder: Path, tmp_path: Path
) -> None:
    with (
        trickling(fleet, tiny_folder, tmp_path / "trickle") as upload,
        submitting(fleet, small_folder) as runs,
    ):
        for name in VICTIMS:
            before = fleet.pids_of(name)
            back = fleet.await_return(fleet.kill(name))
            assert not before & fleet.pids_of(name), f"a process of the old life is left; {back}"
            fleet.await_whole()
            due = upload.sent
            fleet.wait(lambda due=due: fleet.processed(upload.run) >= due, "getting on with the upload")
    fleet.tell(f"answered meanwhile: {len(runs)} runs")
    lives = {name: len(witness.pids(name)) for name in NODES}
    assert lives == {name: 2 if name in VICTIMS else 1 for name in NODES}, fleet.story()
    first, *between, last = witness.leaders()
    assert (first, last) == ("monitor-3", "monitor-3"), fleet.story()
    assert between, "somebody led while the leader was dead"
    assert fleet.leaders() == ["monitor-3"], fleet.story()
    assert witness.violations() == []


def test_rabbitmq_killed_at_the_end_of_an_upload_comes_back_and_nobody_else_is_revived(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        loss = fleet.kill("rabbitmq")
        upload.may_finish.set()
        back = fleet.await_return(loss)
    fleet.await_whole()
    assert fleet.pids() == pids | {"rabbitmq": back.pid}, fleet.story()
    assert {state for name in NODES for state in witness.states(name)} == {"alive"}, fleet.story()
    assert witness.leaders() == ["monitor-3"]
    assert witness.violations() == []


def test_postgresql_killed_at_the_end_of_an_upload_comes_back_and_the_upload_goes_on(
    fleet: Fleet, witness: RegistryObserver, small_folder: Path, tmp_path: Path
) -> None:
    with trickling(fleet, small_folder, tmp_path / "answers") as upload:
        loss = fleet.kill("postgresql")
        upload.may_finish.set()
        fleet.await_return(loss)
    fleet.await_whole()
    assert witness.violations() == []


def test_nodes_that_are_told_to_leave_do_so_at_once_and_no_new_leader_brings_them_back(
    fleet: Fleet, witness: RegistryObserver
) -> None:
    leaving = ("gateway-1", "monitor-3")
    epochs = [fleet.nodes()[name].epoch for name in leaving]
    losses = [tell_to_leave(fleet, name) for name in leaving]
    fleet.wait(lambda: fleet.leaders() == ["monitor-2"], "led by the next one")
    fleet.tell(f"monitor-2: leads after {time.monotonic() - losses[-1].at:.1f} s")
    time.sleep(LONG_ENOUGH_TO_REVIVE)
    for name in leaving:
        assert (fleet.nodes()[name].state, fleet.pid_of(name)) == ("stopped", None), fleet.story()
    fleet.start(*leaving)
    fleet.await_whole()
    assert [fleet.nodes()[name].epoch for name in leaving] == [epoch + 1 for epoch in epochs]
    assert "dead" not in {state for name in NODES for state in witness.states(name)}, fleet.story()
    assert witness.violations() == []


def test_runs_that_are_cancelled_while_the_pipeline_is_away_are_never_processed(
    fleet: Fleet, small_folder: Path, tmp_path: Path
) -> None:
    loss = tell_to_leave(fleet, "pipeline-1")
    with Client(fleet.url) as client:
        one, *others = runs = [client.submit(small_folder).id for _ in range(3)]
    cancel = ("--server", fleet.url, "--json")
    assert fleet.kopi("cancel", one, *cancel)["state"] == "ended"
    ended = fleet.kopi("cancel", "--all", *cancel)
    assert {found["run"]: found["state"] for found in ended} == dict.fromkeys(others, "ended")
    time.sleep(max(0.0, loss.at + LONG_ENOUGH_TO_REVIVE - time.monotonic()))
    assert (fleet.nodes()[loss.name].state, fleet.pid_of(loss.name)) == ("stopped", None), fleet.story()

    fleet.start("pipeline-1")

    fleet.submit(small_folder, tmp_path / "answers")
    check_answers(small_folder, tmp_path / "answers")
    assert [fleet.processed(run) for run in runs] == [0, 0, 0]
    took = fleet.wait(
        lambda: not [path for path in paths_below(fleet.home) if any(run in path.name for run in runs)],
        "tidy",
        TIDY_SECONDS,
    )
    fleet.tell(f"pipeline-1: answers again; tidy after another {took:.1f} s")


def test_a_fleet_that_is_taken_down_leaves_no_process_port_lock_or_record(fleet: Fleet) -> None:
    ports = listening(fleet.processes())
    assert len(ports) >= len(("gateway", "postgresql", "rabbitmq"))

    assert set(fleet.down()) == set(fleet.kinds)

    assert fleet.processes() == []
    assert [port for port in ports if not is_free(port)] == []
    with exclusive_home(fleet.home):  # nobody holds it any more
        left = {path.name for name in ("*.lock", "*.pid", "lock", "nodes") for path in fleet.home.rglob(name)}
        assert left == {"serve.lock"}


def tell_to_leave(fleet: Fleet, name: str) -> StruckNode:
    loss = fleet.kill(name, signal.SIGTERM)
    assert fleet.exit_code(loss.pid, LEAVING_SECONDS) == 0, fleet.log(name)
    fleet.tell(f"{name}: left after {time.monotonic() - loss.at:.1f} s")
    return loss


def listening(processes: list[psutil.Process]) -> set[int]:
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sockets = process.net_connections("tcp")
            found |= {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
