"""The rate limit of a caller, on a clock that the test moves. The pace of bodies is tested with admission."""

import pytest

from kopitiam.gateway import rates
from kopitiam.gateway.problems import Refusal
from kopitiam.gateway.rates import BURST_SECONDS, RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(limit: RateLimit, caller: str, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            limit.count(caller)
            count += 1
        except Refusal as refused:
            assert (refused.status, refused.body["error"]) == (429, "too_fast")
    return count


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    clock = Clock()
    limit = RateLimit(10, clock)
    assert admitted(limit, "anna", 1000) == 10 * BURST_SECONDS
    assert admitted(limit, "anna", 10) == 0
    clock.now += 1
    assert admitted(limit, "anna", 1000) == 10
    clock.now += 3600
    assert admitted(limit, "anna", 1000) == 10 * BURST_SECONDS


def test_one_caller_over_the_limit_does_not_limit_others() -> None:
    limit = RateLimit(10, Clock())
    assert admitted(limit, "anna", 1000) < 1000
    assert admitted(limit, "ben", 10) == 10


def test_zero_is_no_limit() -> None:
    assert admitted(RateLimit(0, Clock()), "anna", 10_000) == 10_000


def test_only_recent_callers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_CALLERS", 3)
    clock = Clock()
    limit = RateLimit(1, clock)
    for number in range(3):
        limit.count(f"machine-{number}")
    clock.now += BURST_SECONDS
    limit.count("machine-0")
    limit.count("machine-3")
    assert set(limit._buckets) == {"machine-0", "machine-3"}
