"""Machines join and leave a fleet under load."""

from pathlib import Path

import pytest
from growth import grow_and_shrink
from host_fleets import HostFleet


@pytest.mark.full
def test_a_machine_joins_under_load_works_and_leaves_again(fleet: HostFleet, sales: Path) -> None:
    before = {node.name: (node.pid, node.epoch) for node in fleet.nodes().values()}
    growth = grow_and_shrink(fleet, sales)
    fleet.note(str(growth))
    assert growth.complaints == []
    assert growth.runs >= 2
    assert growth.tasks > 0
    after = {node.name: (node.pid, node.epoch) for node in fleet.nodes().values()}
    assert after == before, "no node was restarted"
