"""A fleet whose storage is a server of S3's protocol on a machine of its own: gateways and the pipeline use
it through pyarrow, Spark's executors through s3a. Machines are cut off and lost in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from host_faults import Cut, Fault, PowerOff
from host_fleets import HostFleet, running
from host_scenes import play
from s3_machines import fetch_or_skip, objects_on, serve_s3, storage_on

from waiting import eventually

S3 = "s3"
HOSTS = {
    "postgresql": "h1",
    "rabbitmq": "h1",
    "monitor-1": "h1",
    "spark-master": "h2",
    "spark-worker-1": "h2",
    "gateway-1": "h3",
    "pipeline-1": "h3",
    "monitor-2": "h3",
}
FAULTS: list[Fault] = [
    Cut(S3, None, "both", 10),
    PowerOff(S3),
    PowerOff("h3", moment="seal"),
    Cut(S3, "h2", "both", 10, "final"),
]


@pytest.fixture
def s3_fleet(tmp_path: Path) -> Iterator[HostFleet]:
    jar = fetch_or_skip()
    fleet = HostFleet(tmp_path / "fleet", HOSTS)
    fleet.lan.add(S3)
    server = fleet.machine(S3)
    server.at_boot = lambda: serve_s3(server, jar)
    fleet.storage = storage_on(server)
    fleet.kept_disks.add(S3)
    fleet.write_config()
    with running(fleet):
        yield fleet


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_fleet_on_s3_answers_exactly_while_machines_and_the_store_are_cut_off_and_lost(
    s3_fleet: HostFleet, sales: Path, tmp_path: Path
) -> None:
    account = play(s3_fleet, FAULTS, [sales, sales], tmp_path / "answers")
    s3_fleet.note(str(account))
    assert account.violations == []
    kept = {"results", "registry.json", "probe-pipeline-1"}
    eventually(lambda: {key.partition("/")[0] for key in objects_on(s3_fleet.machine(S3))} <= kept)
    assert not any(s3_fleet.lan.shared.iterdir()), "nothing is in the folder that machines could share"
