"""Topic patterns: `is_match` against a word-by-word definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.bus.port import is_match
from kopitiam.contracts.messages import END_TOPICS, PROGRESS_TOPICS, end_topic, progress_topic

WORDS = st.sampled_from(["a", "b", "ab", ""])


def matches_by_definition(pattern: list[str], topic: list[str]) -> bool:
    match pattern:
        case []:
            return topic == []
        case ["#", *rest]:
            return any(matches_by_definition(rest, topic[used:]) for used in range(len(topic) + 1))
        case ["*", *rest]:
            return topic != [] and matches_by_definition(rest, topic[1:])
        case [word, *rest]:
            return topic[:1] == [word] and matches_by_definition(rest, topic[1:])


@given(
    st.lists(WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=6),
    st.lists(WORDS, min_size=1, max_size=6),
)
def test_is_match_agrees_with_the_definition(pattern: list[str], topic: list[str]) -> None:
    assert is_match(".".join(pattern), ".".join(topic)) == matches_by_definition(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.bc", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("#", "a.b.c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("a.#.c", "a.b.b", False),
        ("#.#", "a", True),
        ("a*", "ab", False),
        (PROGRESS_TOPICS, progress_topic("agg_tpv", 3), True),
        (PROGRESS_TOPICS, end_topic("users"), False),
        (END_TOPICS, end_topic("users"), True),
    ],
)
def test_examples_of_patterns(pattern: str, topic: str, expected: bool) -> None:
    assert is_match(pattern, topic) is expected


def test_a_pattern_with_many_wildcards_takes_no_exponential_time() -> None:
    assert not is_match(".".join(["#", "a"] * 50), ".".join(["a"] * 49 + ["b"]))
