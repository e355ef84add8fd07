"""A full disk: the pipeline has an alarm until there is space again, and then finishes the run."""

from pathlib import Path

import httpx
import pytest
from fleets import Fleet

from full_disk import fill, mounted
from kopitiam.client.client import Client
from trickle import check_answers


def alarm_of(fleet: Fleet, name: str) -> str | None:
    nodes = httpx.get(f"{fleet.url}/api/v1/nodes", timeout=30).raise_for_status().json()
    alarm: str | None = next(node["alarm"] for node in nodes if node["name"] == name)
    return alarm


@pytest.mark.long
def test_a_pipeline_without_space_for_partials_has_an_alarm_until_there_is_space(
    fleet: Fleet, small_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    with mounted(fleet.home / "partials") as disk, Client(fleet.url, patience_seconds=120) as client:
        fill(disk / "ballast")
        run = client.submit(small_folder)
        took = fleet.wait(lambda: alarm_of(fleet, "pipeline-1"), "showing the alarm of the pipeline")
        alarm = alarm_of(fleet, "pipeline-1") or ""
        fleet.note(f"pipeline-1: alarm after {took:.1f} s: {alarm}")
        assert str(fleet.home) not in alarm
        assert fleet.nodes()["pipeline-1"].state == "alive", fleet.status_text()
        (disk / "ballast").unlink()
        run.wait(120)
        run.download(tmp_path / "answers")
        fleet.wait(lambda: alarm_of(fleet, "pipeline-1") is None, "without an alarm")
    check_answers(small_folder, tmp_path / "answers")
    assert fleet.pids() == pids, fleet.status_text()
