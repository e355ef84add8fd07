"""Which files of a folder that fills are complete."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kopitiam.client.watching import Completeness, Stamp

FILE, OTHER = Path("sales.csv"), Path("users.csv")


def test_a_file_is_complete_when_it_has_not_changed_for_a_while() -> None:
    files = Completeness(settle_seconds=30)
    assert files.complete({FILE: (10, 1)}, (), now=0) == set()
    assert files.complete({FILE: (10, 1)}, (), now=29) == set()
    assert files.complete({FILE: (10, 1)}, (), now=30) == {FILE}
    assert files.complete({FILE: (11, 1)}, (), now=31) == set()
    assert files.complete({FILE: (11, 2)}, (), now=60) == set(), "the same size, written again"
    assert files.complete({FILE: (11, 2)}, (), now=90) == {FILE}


def test_a_file_that_was_away_settles_again() -> None:
    files = Completeness(settle_seconds=30)
    files.complete({FILE: (10, 1)}, (), now=0)
    files.complete({}, (), now=20)
    assert files.complete({FILE: (10, 1)}, (), now=40) == set()


def test_with_a_marker_only_marked_files_are_complete() -> None:
    files = Completeness(settle_seconds=0, marker=".done")
    stamps: dict[Path, Stamp] = {FILE: (10, 1), OTHER: (10, 1)}
    assert files.complete(stamps, (), now=1000) == set()
    assert files.complete(stamps, {Path("sales.csv.done"), Path("other.done")}, now=1000) == {FILE}


@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=30), settle=st.integers(1, 5))
def test_complete_files_have_not_changed_within_the_time(sizes: list[int], settle: int) -> None:
    files = Completeness(settle_seconds=settle)
    for now, size in enumerate(sizes):
        is_complete = files.complete({FILE: (size, 1)}, (), now) == {FILE}
        window = sizes[max(0, now - settle) : now + 1]
        assert is_complete == (len(window) > settle and len(set(window)) == 1)
