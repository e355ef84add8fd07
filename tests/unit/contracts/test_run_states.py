"""The moves a run may make, and the arithmetic of chunk numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.runs import (
    OVER,
    TRANSITIONS,
    RunState,
    beyond,
    can_move,
    gaps,
    is_run_id,
    new_run_id,
)
from spans import spans

LEGAL = {
    ("open", "sealed"), ("open", "failed"), ("open", "ended"),
    ("sealed", "final"), ("sealed", "failed"), ("sealed", "ended"),
    ("final", "done"), ("final", "failed"), ("final", "ended"),
}  # fmt: skip
NUMBERS = st.sets(st.integers(0, 40))
COUNTS = st.integers(0, 45)


@pytest.mark.parametrize("to", RunState)
@pytest.mark.parametrize("state", RunState)
def test_a_run_moves_only_along_the_legal_transitions(state: RunState, to: RunState) -> None:
    assert can_move(state, to) == ((state.value, to.value) in LEGAL)


def test_every_state_is_in_the_transition_table() -> None:
    assert set(TRANSITIONS) == set(RunState)


def test_a_run_is_over_when_it_is_done_failed_or_ended() -> None:
    assert set(OVER) == {RunState.DONE, RunState.FAILED, RunState.ENDED}


def test_every_state_can_be_reached_from_open() -> None:
    reached, ahead = set(), [RunState.OPEN]
    while ahead:
        state = ahead.pop()
        reached.add(state)
        ahead += TRANSITIONS[state] - reached
    assert reached == set(RunState)


def test_run_ids_are_random_and_safe_in_a_path() -> None:
    ids = {new_run_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_run_id(run) and len(run) >= 20 for run in ids)


@pytest.mark.parametrize(
    "text", ["", "abc", "../../etc/passwd0", "A" * 20, "a" * 20 + "\n", "a" * 33, "a/" * 9]
)
def test_what_is_not_a_run_id_is_refused(text: str) -> None:
    assert not is_run_id(text)


def _numbers(found: tuple[tuple[int, int], ...]) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


@given(NUMBERS)
def test_spans_hold_the_same_numbers_in_the_fewest_pieces(numbers: set[int]) -> None:
    found = spans(numbers)
    assert _numbers(found) == numbers
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


@given(NUMBERS, COUNTS)
def test_gaps_are_what_is_missing_below_the_count(numbers: set[int], count: int) -> None:
    assert gaps(spans(numbers), count) == spans(set(range(count)) - numbers)


@given(NUMBERS, COUNTS)
def test_beyond_is_what_is_there_from_the_count_on(numbers: set[int], count: int) -> None:
    assert beyond(spans(numbers), count) == spans(number for number in numbers if number >= count)
