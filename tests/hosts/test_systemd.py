"""The files of deploy/systemd, run as they are: three machines whose first process is systemd, revived over
ssh. They use PostgreSQL and RabbitMQ of the shared fleet, which never notices."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from host_fleets import HostFleet
from systemd_machines import DEPLOY, USER_ID, SystemdMachine, require_systemd

from kopitiam.contracts.messages import NodeRecord
from kopitiam.registry.registry import Registry, connect_registry
from kopitiam.system.settings import load_settings
from trickle import check_answers

TOKEN = "a token for this test"
CONFIG = DEPLOY / "kopitiam.toml"
HOSTS = load_settings(CONFIG).nodes.hosts
QUICKER = "KOPI_MONITOR__HEARTBEAT_SECONDS=1\nKOPI_MONITOR__TIMEOUT_SECONDS=6\n"


def database_beside(url: str, name: str) -> str:
    """The URL of another database on the same server, made for this test."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"


@pytest.fixture
def registry(fleet: HostFleet, tmp_path: Path) -> Iterator[Registry]:
    require_systemd()
    registry = connect_registry(database_beside(fleet.settings.registry.url, "under_systemd"), tmp_path)
    yield registry
    registry.close()


@pytest.fixture
def machines(fleet: HostFleet, registry: Registry, tmp_path: Path) -> Iterator[dict[str, SystemdMachine]]:
    storage = tmp_path / "storage"
    storage.mkdir()
    os.chown(storage, USER_ID, USER_ID)
    url = fleet.settings.registry.url.rpartition("/")[0] + "/under_systemd"
    secrets = (
        f"KOPI_REGISTRY__URL={url}\nKOPI_BUS__URL={fleet.settings.bus.url}\n"
        f'KOPI_GATEWAY__TOKENS=\'{{"analyst": "{TOKEN}"}}\'\n{QUICKER}'
    )
    names = sorted(set(HOSTS.values()))
    fleet.lan.add(*names, kind=SystemdMachine)
    machines = {name: machine for name in names if isinstance(machine := fleet.machine(name), SystemdMachine)}
    try:
        for machine in machines.values():
            machine.storage = storage
            machine.files = {
                "kopitiam/kopitiam.toml": CONFIG.read_text(encoding="utf-8"),
                "kopitiam/secrets.env": secrets,
            }
            machine.boot()
        yield machines
    finally:
        for machine in machines.values():
            machine.power_off()


@pytest.mark.rare
def test_units_of_three_machines_run_a_fleet_and_monitors_restart_them_by_ssh(
    fleet: HostFleet,
    registry: Registry,
    machines: dict[str, SystemdMachine],
    sales: Path,
    tmp_path: Path,
) -> None:
    def nodes() -> dict[str, NodeRecord]:
        return {node.name: node for node in registry.nodes()}

    def is_whole() -> bool:
        return {name: node.host for name, node in nodes().items() if node.state == "alive"} == HOSTS

    def epochs() -> dict[str, int]:
        return {name: lease.epoch for name, lease in registry.leases().items() if name in HOSTS}

    before = {node.name: (node.pid, node.epoch, node.state) for node in fleet.nodes().values()}
    for name, host in HOSTS.items():
        machines[host].systemctl("start", f"kopi@{name}")
    fleet.wait(is_whole, "under way on all machines")
    urls = [nodes()[name].url for name in ("gateway-1", "gateway-2")]
    assert urls == ["http://kopi-1:8440", "http://kopi-2:8440"]

    killed = ("gateway-1", "pipeline-2", "monitor-3")
    known = epochs()
    for name in killed:
        machines[HOSTS[name]].systemctl("kill", "--signal", str(int(signal.SIGKILL)), f"kopi@{name}")
    fleet.wait(lambda: all(epochs()[name] > known[name] for name in killed) and is_whole(), "revived")
    assert {name for name, epoch in epochs().items() if epoch > known[name]} == set(killed)

    fleet.submit(sales, tmp_path / "answers", "--token", TOKEN, server=",".join(map(str, urls)))
    check_answers(sales, tmp_path / "answers")

    for name, host in HOSTS.items():
        machines[host].systemctl("stop", f"kopi@{name}")
        result = machines[host].systemctl("show", "--property=Result", f"kopi@{name}")
        assert result == "Result=success\n", machines[host].log(name)
    after = {node.name: (node.pid, node.epoch, node.state) for node in fleet.nodes().values()}
    assert after == before, "the other fleet on the same RabbitMQ"
