"""Texts become two numbers if they are canonical UUIDs, and can be made again."""

import re

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kopitiam.contracts.uuids import pack
from packed_ids import uuid_text

CANONICAL = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UUIDS = st.uuids().map(str)
NEAR_MISSES = st.builds(
    lambda text, place, letter: text[:place] + letter + text[place + 1 :],
    UUIDS,
    st.integers(0, 36),
    st.sampled_from("0fgA-/:`@é\0\x7f"),
)
TEXTS = st.none() | UUIDS | NEAR_MISSES | UUIDS.map(str.upper) | st.text()


@given(st.lists(TEXTS), st.integers(0, 5))
@example(["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"], 0)
def test_exactly_the_canonical_uuids_become_numbers(texts, start):
    texts = [text for text in texts if text != ""]
    packed = pack(pa.array([None] * start + texts, pa.string()).slice(start))
    for text, *parts in zip(texts, *(column.to_pylist() for column in packed), strict=True):
        if text is not None and CANONICAL.fullmatch(text):
            assert parts[0] is None
            assert uuid_text(parts[1], parts[2]) == text
        else:
            assert parts == [text, None, None]


@given(st.lists(UUIDS, min_size=2))
def test_numbers_without_a_sign_have_the_order_of_the_texts(texts):
    packed = pack(pa.array(texts))
    unsigned = [column.cast(pa.uint64(), safe=False).to_pylist() for column in (packed.high, packed.low)]
    assert [text for _, text in sorted(zip(zip(*unsigned, strict=True), texts, strict=True))] == sorted(texts)
