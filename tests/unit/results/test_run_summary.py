"""The fingerprint of an input."""

from dataclasses import replace

import pytest

from kopitiam.contracts.runs import ChunkRecord
from kopitiam.results.summary import fingerprint

CHUNKS = [
    ChunkRecord("transactions", number, f"{number:064x}", 100, 1000, 0, number % 2, number + 1)
    for number in range(12)
] + [ChunkRecord("stores", 0, "f" * 64, 10, 100, 0, 0, 99)]


def test_the_way_that_chunks_took_makes_no_difference():
    elsewhere = [replace(chunk, lane=3, sequence=200 - chunk.sequence) for chunk in reversed(CHUNKS)]
    assert fingerprint(elsewhere) == fingerprint(CHUNKS)


@pytest.mark.parametrize("change", [{"digest": "e" * 64}, {"table": "users"}, {"number": 77}, {"rows": 101}])
def test_any_change_of_the_input_changes_it(change):
    assert fingerprint([*CHUNKS[:-1], replace(CHUNKS[-1], **change)]) != fingerprint(CHUNKS)
    assert fingerprint(CHUNKS[:-1]) != fingerprint(CHUNKS)


def test_it_is_a_sha256_that_says_so():
    assert fingerprint([]) == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
