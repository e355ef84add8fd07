"""Nodes and services are killed under the hands of clients: the monitors bring them back, and the answers
are exact.
"""

import os
from pathlib import Path

from clients import submitting, trickling
from fleets import Fleet
from witness import Witness

IS_FULL = bool(os.environ.get("KOPI_TEST_FULL"))
IN_TURN = ("gateway-1", "pipeline-1", "monitor-1", "monitor-2", "monitor-3")
VICTIMS = IN_TURN if IS_FULL else ("gateway-1", "pipeline-1", "monitor-3")


def test_an_upload_outlives_every_node_that_is_killed_meanwhile(
    fleet: Fleet, witness: Witness, tiny_folder: Path, small_folder: Path, tmp_path: Path
) -> None:
    with (
        trickling(fleet, tiny_folder, tmp_path / "trickle"),
        submitting(fleet, small_folder, tmp_path / "small") as runs,
    ):
        for name in VICTIMS:
            before = fleet.family(name)
            back = fleet.await_return(fleet.kill(name))
            assert not before & fleet.family(name), f"something of {name} is left; {back}"
            fleet.await_whole()
    fleet.tell(f"{len(runs)} runs were answered meanwhile")
    assert all(len(witness.pids(name)) == 1 + (name in VICTIMS) for name in IN_TURN), fleet.story()
    assert witness.leaders() == ["monitor-3", "monitor-2", "monitor-3"], fleet.story()
    assert fleet.leaders() == ["monitor-3"]
    witness.check_epochs()
