"""Adding and removing nodes and shards while clients upload."""

import contextlib
from pathlib import Path

import pytest
from clients import trickling
from fleets import PATIENCE_SECONDS, Fleet

from kopitiam.contracts.runs import RunState
from trickle import Trickle, check_answers

TWO_SHARDS = """[pipeline]
shards = 2
[nodes]
gateways = ["gateway-1", "gateway-2"]
pipelines = { pipeline-1 = [0], pipeline-2 = [1] }
"""


def shards_of(fleet: Fleet, run: str) -> set[int]:
    return {shard for shards in fleet.registry.progress(run).values() for shard in shards}


@pytest.mark.full
def test_nodes_and_shards_are_added_and_removed_during_uploads(
    fleet: Fleet, small_folder: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    pids = fleet.pids()
    host, _, port = fleet.url.rpartition(":")
    second = f"{host}:{int(port) + 1}"
    with trickling(fleet, tiny_folder, tmp_path / "old") as old:
        with fleet.edited(("[nodes]\n", TWO_SHARDS)):
            fleet.up()
            assert pids.items() <= fleet.pids().items(), "running nodes keep their processes"
            fleet.wait(lambda: {"gateway-2", "pipeline-2"} <= fleet.nodes().keys(), "aware of the new nodes")
            fleet.await_recovery(fleet.kill("gateway-2"))
            fleet.await_whole()

            with contextlib.closing(Trickle(second, small_folder)) as new:
                new.may_finish.set()
                new.send()
                new.fetch(tmp_path / "new")
            check_answers(small_folder, tmp_path / "new")
            assert shards_of(fleet, new.run) == {0, 1}
            assert shards_of(fleet, old.run) == {0}
            for name in ("gateway-2", "pipeline-2"):
                fleet.do("node", "stop", name)
        fleet.wait(
            lambda: not {"gateway-2", "pipeline-2"} & fleet.nodes().keys(), "without the removed nodes"
        )
    assert fleet.registry.get_run(old.run).state is RunState.DONE
    assert shards_of(fleet, old.run) == {0}
    assert fleet.pids() == pids


@pytest.mark.long
def test_settings_that_leave_a_run_without_a_pipeline_are_refused(fleet: Fleet) -> None:
    run = fleet.registry.open_run({}, "", "", idempotency_key=None, lease_seconds=600, shards=2).run.run
    command = fleet.start_command("cluster", "up", "--config", str(fleet.config))
    _, complaint = command.communicate(timeout=PATIENCE_SECONDS)
    fleet.registry.move(run, RunState.ENDED, "no more")
    assert command.returncode == 2
    assert complaint.strip().endswith(
        "runs that are under way have 2 shards; keep a pipeline for 1 until they end"
    )
    assert "Traceback" not in complaint
