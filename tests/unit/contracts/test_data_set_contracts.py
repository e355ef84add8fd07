"""Data sets: what a version changes, and where the chunks of a file lie."""

import pytest

from kopitiam.contracts.data_sets import (
    DATA_SET_NAME,
    Changes,
    DataFile,
    DataUse,
    changes_between,
    new_file_id,
    shard_of_file,
)


def file(name: str, id_: str, rows: int) -> DataFile:
    return DataFile("users", name, f"digest of {id_}", 9, ("user_id",), file=id_, run="r", rows=rows)


def test_changes_count_files_and_rows_that_came_and_went():
    before = [file("a", "1", 10), file("b", "2", 20), file("c", "3", 30)]
    after = [file("a", "1", 10), file("b", "4", 25), file("c", "3", 30), file("d", "5", 7)]
    changes = changes_between(before, after)
    assert changes == Changes(added=1, replaced=1, kept=2, rows_added=32, rows_removed=20)
    assert changes.text == "1 file added, 1 replaced, 2 kept; 32 rows added, 20 taken away"
    assert changes_between(before, before) == Changes(kept=3)


def test_the_use_of_a_data_set_is_stored_and_read_back():
    for use in (
        DataUse("id", "sales", True, 3, 4, Changes(added=1, rows_added=5)),
        DataUse("id", "sales", False, 3),
    ):
        assert DataUse.from_dict(use.to_dict()) == use


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_chunks_of_a_file_and_files_of_one_chunk_are_spread_over_all_shards(shards: int):
    of_one_file = [shard_of_file("0123456789ab", number, shards) for number in range(shards)]
    assert sorted(of_one_file) == list(range(shards))
    first = {shard_of_file(new_file_id(), 0, shards) for _ in range(100 * shards)}
    assert first == set(range(shards))


@pytest.mark.parametrize("name", ["sales", "a", "x" * 40, "branch-7_2024"])
def test_names_of_data_sets_are_short_and_plain(name: str):
    assert DATA_SET_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "Sales", "1st", "-x", "a b", "a/b", "x" * 41, "~id", "caf\u00e9"])
def test_other_names_are_refused(name: str):
    assert not DATA_SET_NAME.fullmatch(name)
