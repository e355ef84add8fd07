"""Names of checkpoints: one for each pipeline, epoch and set of shards, and never too long."""

from pathlib import Path

from kopitiam.contracts.batches import MOST_SHARDS
from kopitiam.contracts.layout import Home
from kopitiam.registry.records import Fence
from kopitiam.runtime.pipeline import new_checkpoint

LONGEST_NAME = "p" * 63
LONGEST_EPOCH = 10**9


def names(*shards: range | list[int]) -> set[str]:
    return {Home(Path()).checkpoint("pipeline-1", each).name for each in shards}


def test_a_checkpoint_names_each_of_a_few_shards():
    assert names(range(3)) == {"pipeline-1-0-1-2"}


def test_many_shards_have_a_name_that_a_file_system_takes(tmp_path: Path):
    checkpoint = Home(tmp_path).checkpoint(f"{LONGEST_NAME}.{LONGEST_EPOCH}", range(MOST_SHARDS))
    checkpoint.mkdir(parents=True)
    longest_list = Home(tmp_path).checkpoint(f"{LONGEST_NAME}.{LONGEST_EPOCH}", [1000] * 25)
    longest_list.mkdir()
    assert {path.name for path in checkpoint.parent.iterdir()} == {checkpoint.name, longest_list.name}


def test_another_set_of_many_shards_has_another_name():
    all_of_them = list(range(MOST_SHARDS))
    assert len(names(all_of_them, all_of_them[1:], [0, *all_of_them[2:]])) == 3


def test_a_new_epoch_removes_the_checkpoints_of_earlier_epochs_of_its_own_node_only(tmp_path: Path):
    def begin(name: str, epoch: int) -> Path:
        checkpoint = new_checkpoint(tmp_path, (0, 1), Fence(name, epoch, f"holder-{epoch}"))
        checkpoint.mkdir(parents=True)
        return checkpoint

    others = [begin("pipeline-1", 3), begin("pipeline-10", 1), begin("pipeline-1-b", 1)]
    earlier = begin("pipeline", 1)

    mine = begin("pipeline", 2)

    assert set(mine.parent.iterdir()) == {mine, *others}
    assert not earlier.exists()
