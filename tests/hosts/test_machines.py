"""A fleet on six machines shows them. A mistake on one is named, and harms no other."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_fleets import HOSTS, KOPI, TIMEOUT_SECONDS, HostFleet
from machines import Machine, shift_of

from tools.reliability.shims import compile_shim
from trickle import check_answers

NEW, NODE = "h7", "gateway-3"
HOUR = 3600


def test_a_machine_shows_all_nodes_with_their_machines_and_stops_its_own_only(fleet: HostFleet) -> None:
    nodes = {node["name"]: node for node in fleet.kopi("h5", "cluster", "status")}
    assert {name: node["host"] for name, node in nodes.items()} == HOSTS
    assert {node["state"] for node in nodes.values()} == {"alive"}
    assert [name for name, node in nodes.items() if node["leader"]] == ["monitor-3"]
    with_memory = {name for name, node in nodes.items() if node["memory_bytes"]}
    assert with_memory == {name for name, machine in HOSTS.items() if machine == "h5"}
    assert nodes["gateway-2"]["url"] == "http://h2:8440"
    assert nodes["postgresql"]["url"] == "postgresql://h1:8450"
    elsewhere = fleet.machine("h2").run(
        KOPI, "node", "stop", "gateway-1", "--config", str(fleet.config), is_checked=False
    )
    assert elsewhere.returncode == 2
    assert elsewhere.stderr == "kopi: h2: gateway-1 runs on h5, and this machine is h2\n"


# -- mistakes on one machine


@pytest.fixture
def new_machine(fleet: HostFleet) -> Iterator[Machine]:
    """A seventh machine that is to run a third gateway. It is gone after the test."""
    if NEW not in fleet.lan.machines:
        fleet.lan.add(NEW)
    machine = fleet.machine(NEW)
    machine.environment, machine.has_storage = {}, True
    fleet.hosts[NODE] = NEW
    fleet.write_config()
    yield machine
    machine.power_off()
    machine.lose_disk()
    del fleet.hosts[NODE]
    fleet.write_config()
    fleet.wait(lambda: NODE not in fleet.nodes(), "rid of the new gateway")


@contextlib.contextmanager
def no_harm(fleet: HostFleet) -> Iterator[None]:
    """All other nodes keep their processes, epochs and records, and make answers as before."""

    def others() -> dict[str, tuple[object, ...]]:
        return {
            node.name: (node.host, node.pid, node.epoch, node.state, node.alarm)
            for node in fleet.nodes().values()
            if node.name != NODE
        }

    before = others()
    yield
    assert others() == before


MISTAKES = {
    "wrong address": r"node\.host h5: \S+ is no address of this machine",
    "wrong password": r'.*password authentication failed for user "kopitiam".*',
    "storage not mounted": r"storage\.url file://\S+: does not carry the mark of the registry, .*",
}


def make_mistake(machine: Machine, mistake: str) -> None:
    """Boot the machine again, empty, with a mistake in its settings or mounts."""
    machine.power_off()
    machine.lose_disk()
    machine.has_storage = mistake != "storage not mounted"
    machine.environment = {
        "wrong address": {"KOPI_NODE__HOST": "h5"},
        "wrong password": {"KOPI_SERVICES__SECRET": "another secret than that of the others"},
    }.get(mistake, {})
    machine.boot()


def test_a_mistake_on_one_machine_is_named_in_one_line_with_the_machine(
    fleet: HostFleet, new_machine: Machine
) -> None:
    with no_harm(fleet):
        for mistake, reason in MISTAKES.items():
            make_mistake(new_machine, mistake)
            begun = time.monotonic()
            refused = new_machine.run(KOPI, "cluster", "up", "--config", str(fleet.config), is_checked=False)
            fleet.note(f"{mistake}: named after {time.monotonic() - begun:.1f} s")
            host = new_machine.environment.get("KOPI_NODE__HOST", NEW)
            assert refused.returncode in (2, 3), refused
            assert re.fullmatch(rf"kopi: {host}: {reason}\n", refused.stderr), refused.stderr


@pytest.mark.rare
def test_a_mistake_on_a_machine_that_monitors_cannot_revive_is_named_by_the_leader(
    fleet: HostFleet, new_machine: Machine
) -> None:
    pattern = re.compile(rf"reviving {NODE} on {NEW}: exit code [23]: kopi: {NEW}: storage\.url")
    with no_harm(fleet):
        make_mistake(new_machine, "storage not mounted")
        leader = fleet.log_file("monitor-3")
        took = fleet.wait(lambda: pattern.search(leader.read_text()), "named by the leader")
        fleet.note(f"named by the leader after {took:.1f} s")


@pytest.mark.rare
def test_a_machine_with_another_version_or_a_wrong_clock_works_and_is_named(
    fleet: HostFleet, new_machine: Machine, tmp_path: Path
) -> None:
    shim, shift = compile_shim("shift_clock", tmp_path), tmp_path / "shift"
    shift.write_bytes(shift_of(HOUR))
    information = tmp_path / "other" / "kopitiam-9.9.dist-info" / "METADATA"
    information.parent.mkdir(parents=True)
    information.write_text("Metadata-Version: 2.1\nName: kopitiam\nVersion: 9.9\n")
    paths = f"{tmp_path / 'other'}:{fleet.lan.environment.get('PYTHONPATH', '')}"
    cases = {
        rf"runs version 9\.9 on {NEW}, and the others \S+": {"PYTHONPATH": paths},
        rf"the clock of {NEW} is 3,\d00 s ahead of the registry's": {
            "LD_PRELOAD": str(shim),
            "CLOCK_SHIFT_FILE": str(shift),
        },
    }
    with no_harm(fleet):
        for reason, environment in cases.items():
            new_machine.power_off()
            new_machine.lose_disk()
            new_machine.environment = environment
            new_machine.boot()
            fleet.up_on(NEW)

            def is_named(reason: str = reason) -> bool:
                node = fleet.nodes().get(NODE)
                return (
                    node is not None
                    and node.state == "alive"
                    and bool(re.fullmatch(reason, node.alarm or ""))
                )

            took = fleet.wait(is_named, f"named: {reason}")
            fleet.note(f"{reason}: named {took:.1f} s after it was up")
            fleet.kopi(NEW, "cluster", "down")
            fleet.wait(lambda: fleet.nodes()[NODE].state == "stopped", "stopped", 5 * TIMEOUT_SECONDS)


@pytest.mark.rare
def test_an_executor_without_the_storage_is_named_and_no_run_fails(
    fleet: HostFleet, sales: Path, tmp_path: Path
) -> None:
    worker = fleet.machine("h4")
    worker.unmount_storage()
    try:
        fleet.submit(sales, tmp_path / "answers")
        check_answers(sales, tmp_path / "answers")
        alarm = "executors on h4 do not see the storage, and are not used"
        fleet.wait(lambda: fleet.nodes()["pipeline-1"].alarm == alarm, "named")
        assert "FileNotFoundException" in fleet.log("pipeline-1")
    finally:
        worker.mount_storage()
    fleet.wait(lambda: fleet.nodes()["pipeline-1"].alarm is None, "used again")


@pytest.mark.rare
def test_kopi_chaos_strikes_the_nodes_of_its_machine_and_every_answer_stays_exact(fleet: HostFleet) -> None:
    options = ("--seed", "3", "--kills", "3", "--clients", "2", "--scale", "0.0003", "--patience", "300")
    report = fleet.kopi("h5", "chaos", *options)
    strikes = [(strike["name"], strike["host"]) for strike in report["timeline"]]
    fleet.note(f"{strikes}; {report['runs']}")
    assert len(strikes) == 3
    assert all(HOSTS[name] == host == "h5" for name, host in strikes)
    assert report["complaints"] == []
    assert report["runs"]["verified"] == report["runs"]["made"] > 0
