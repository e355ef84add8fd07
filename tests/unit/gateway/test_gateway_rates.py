"""How fast one caller may call, on a clock that the test moves."""

import pytest

from kopitiam.gateway import rates
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.rates import BURST_SECONDS, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(limit: Rates, caller: str, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            limit.admit(caller)
            count += 1
        except Refusal as refused:
            assert (refused.status, refused.body["error"]) == (429, "too_fast")
    return count


def test_a_burst_is_let_in_and_then_so_many_a_second() -> None:
    clock = Clock()
    limit = Rates(10, clock)
    assert admitted(limit, "anna", 1000) == 10 * BURST_SECONDS
    assert admitted(limit, "anna", 10) == 0
    clock.now += 1
    assert admitted(limit, "anna", 1000) == 10
    clock.now += 3600
    assert admitted(limit, "anna", 1000) == 10 * BURST_SECONDS


def test_who_calls_too_fast_is_in_nobody_elses_way() -> None:
    limit = Rates(10, Clock())
    assert admitted(limit, "anna", 1000) < 1000
    assert admitted(limit, "ben", 10) == 10


def test_zero_is_no_limit() -> None:
    assert admitted(Rates(0, Clock()), "anna", 10_000) == 10_000


def test_only_callers_of_late_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_CALLERS", 3)
    clock = Clock()
    limit = Rates(1, clock)
    for number in range(3):
        limit.admit(f"machine-{number}")
    clock.now += BURST_SECONDS
    limit.admit("machine-0")
    limit.admit("machine-3")
    assert set(limit._buckets) == {"machine-0", "machine-3"}
