"""The fingerprint of an input in the summary of a run."""

from dataclasses import replace

import pytest

from kopitiam.contracts.runs import ChunkRecord
from kopitiam.results.summary import fingerprint

CHUNKS = [
    ChunkRecord("transactions", number, f"{number:064x}", 100, 1000, 0, number % 2, number + 1)
    for number in range(12)
] + [ChunkRecord("stores", 0, "f" * 64, 10, 100, 0, 0, 99)]


def test_order_and_lanes_of_chunks_do_not_change_the_fingerprint():
    elsewhere = [replace(chunk, lane=3, sequence=200 - chunk.sequence) for chunk in reversed(CHUNKS)]
    assert fingerprint(elsewhere) == fingerprint(CHUNKS)


@pytest.mark.parametrize("change", [{"digest": "e" * 64}, {"table": "users"}, {"number": 77}, {"rows": 101}])
def test_any_change_of_the_input_changes_the_fingerprint(change):
    assert fingerprint([*CHUNKS[:-1], replace(CHUNKS[-1], **change)]) != fingerprint(CHUNKS)
    assert fingerprint(CHUNKS[:-1]) != fingerprint(CHUNKS)


def test_the_fingerprint_is_a_sha256():
    assert fingerprint([]) == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
