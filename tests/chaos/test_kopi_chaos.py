"""`kopi chaos` against real fleets: its strikes, its report, and the fleet afterwards."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fleets import TIMEOUT_SECONDS, Fleet, adopting

from kopitiam.bus.private_broker import free_port
from kopitiam.fleet.processes import process_state
from kopitiam.system.settings import load_settings
from kopitiam_chaos.plan import Pace, groups_of, plan
from rabbitmq_server import ensure_installed
from sampling import IS_FULL

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.toml"
SEED, STRUCK = (
    (13, ["pipeline-1", "gateway-1", "postgresql", "leader"]) if IS_FULL else (23, ["pipeline-1", "leader"])
)
STRIKES = len(STRUCK)
FREEZING_SEED = 19  # its first strike is a freeze longer than the heartbeat timeout
LONG_SEED, LONG_STRIKES, LONG_KILLS, LONG_SECONDS = 74, 20, 12, 2400
EXIT_SECONDS = 120  # on a loaded machine
PACE = """
[monitor]
heartbeat_seconds = 1
timeout_seconds = 10
"""
only_in_full = pytest.mark.skipif(not IS_FULL, reason="only with KOPI_TEST_FULL")


@pytest.mark.long
def test_nodes_are_struck_by_plan_and_every_answer_is_exact(fleet: Fleet) -> None:
    report = fleet.do(
        *("chaos", "--seed", str(SEED), "--kills", str(STRIKES)),
        *("--clients", "2", "--scale", "0.001", "--patience", "200"),
    )
    note_timeline(fleet, report)
    check(report, kills=STRIKES, clients=2)
    strikes = plan(SEED, STRIKES, groups_of(fleet.kinds), Pace.of(TIMEOUT_SECONDS), is_freezing=False)
    struck = ["leader" if each["was_leader"] else each["name"] for each in report["timeline"]]
    assert struck == [strike.target for strike in strikes]
    assert struck == STRUCK
    assert all(each["is_replaced"] for each in report["timeline"])
    assert len(report["leaders_by_epoch"]) >= 3, "the leader was killed, and leads again after its revival"
    fleet.await_whole()


@pytest.mark.long
def test_an_interrupt_leaves_the_fleet_running_and_no_node_frozen(fleet: Fleet) -> None:
    command = fleet.start_command(
        *("chaos", "--seed", str(FREEZING_SEED), "--kills", "5", "--freeze", "--targets", "gateway-1"),
        *("--clients", "1", "--scale", "0.0001", "--config", str(fleet.config)),
    )
    try:
        fleet.wait(lambda: is_frozen(fleet, "gateway-1") or command.poll() is not None, "frozen")
        command.send_signal(signal.SIGINT)
        shown, complaint = command.communicate(timeout=EXIT_SECONDS)
    finally:
        command.kill()
    assert (command.returncode, shown, complaint) == (130, "", "kopi: interrupted\n")
    assert not is_frozen(fleet, "gateway-1")
    fleet.await_whole()


def test_the_long_plan_kills_every_kind_and_at_least_twelve_times() -> None:
    groups = groups_of(load_settings(EXAMPLE).nodes.kinds)
    strikes = plan(LONG_SEED, LONG_STRIKES, groups, Pace.of(TIMEOUT_SECONDS), is_freezing=True)
    killed = [strike.target for strike in strikes if strike.deed == "kill"]
    assert len(strikes) > len(killed) >= LONG_KILLS
    assert all(set(killed) & set(names) for names in groups.values())


class Example(Fleet):
    """The example cluster on its own home and ports, with a shorter heartbeat timeout."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ())
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        text = EXAMPLE.read_text(encoding="utf-8")
        text = text.replace("~/.kopitiam-cluster", str(self.home)).replace(
            "127.0.0.1:8440", f"127.0.0.1:{port}"
        )
        self.config.write_text(text + PACE, encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    ensure_installed()
    with adopting():
        example = Example(tmp_path)
        try:
            example.up()
            yield example
        finally:
            example.end()


@only_in_full
@pytest.mark.timeout(LONG_SECONDS + 300)
def test_every_kind_of_node_of_a_cluster_is_struck_and_every_answer_is_exact(example: Example) -> None:
    command = example.start_command(
        *("chaos", "--seed", str(LONG_SEED), "--kills", str(LONG_STRIKES), "--freeze", "--json"),
        *("--clients", "4", "--scale", "0.05", "--config", str(example.config)),
    )
    shown, complaint = command.communicate(timeout=LONG_SECONDS)
    assert complaint == "", shown
    report = json.loads(shown)
    note_timeline(example, report)
    check(report, kills=LONG_STRIKES, clients=4)
    groups = groups_of(example.kinds)
    struck = {each["name"] for each in report["timeline"]}
    assert all(struck & set(names) for group, names in groups.items() if group != "leader"), struck
    assert any(each["was_leader"] for each in report["timeline"])
    deeds = [each["deed"] for each in report["timeline"]]
    assert deeds.count("kill") >= LONG_KILLS
    assert "freeze" in deeds


def check(report: dict[str, Any], kills: int, clients: int) -> None:
    """All answers are exact, all struck nodes recovered, and each epoch had one leader."""
    assert (report["is_exact"], report["complaints"]) == (True, [])
    assert report["strikes"] == {"planned": kills, "made": kills}
    assert report["clients"] == {"started": clients, "ended": clients}
    assert report["runs"]["verified"] == report["runs"]["made"] >= clients
    assert (report["rows"]["lost"], report["rows"]["doubled"]) == (0, 0)
    assert report["rows"]["there"] == sum(run["rows"] for run in report["run_list"])
    assert {run["client"] for run in report["run_list"]} == set(range(1, clients + 1))
    assert all(each["revived_seconds"] is not None for each in report["timeline"])
    assert all(len(leaders) == 1 for leaders in report["leaders_by_epoch"].values())
    check_actions(report)
    assert all(each["runs_under_way"] for each in report["timeline"]), "each strike hit a run"


def check_actions(report: dict[str, Any]) -> None:
    """One monitor acted under each epoch, by its own log: it opened barriers and revived nodes. A leader
    that is killed may have had no time to log its last action."""
    actors = report["actions_by_epoch"]
    assert all(len(monitors) == 1 for monitors in actors.values())
    nodes = [
        each for each in report["timeline"] if each["name"].startswith(("gateway", "pipeline", "monitor"))
    ]
    revived = sum(each["is_replaced"] for each in nodes)
    leaders_struck = sum(each["was_leader"] for each in nodes)
    logged = sum(sum(counts.values()) for counts in actors.values())
    assert logged >= report["runs"]["made"] + revived - leaders_struck


def note_timeline(fleet: Fleet, report: dict[str, Any]) -> None:
    for each in report["timeline"]:
        fleet.note(
            f"{each['at_seconds']:6.1f} s: {each['name']}{', who led,' if each['was_leader'] else ''} "
            f"{each['deed']} {each['hold_seconds'] or ''}: noticed {each['noticed_seconds']}, "
            f"back {each['revived_seconds']}"
        )
    epochs = ("leaders_by_epoch", "actions_by_epoch")
    figures = ("seconds", "runs", "rows", *epochs, "notice_seconds", "revive_seconds")
    fleet.note(json.dumps({name: report[name] for name in figures}))


def is_frozen(fleet: Fleet, name: str) -> bool:
    pid = fleet.pid_of(name)
    return pid is not None and process_state(psutil.Process(pid)) == "frozen"
