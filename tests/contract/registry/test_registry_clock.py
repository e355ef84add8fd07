"""The registry's own clock: no lease expires because a machine's date is wrong or is changed."""

import time

import pytest

from kopitiam.registry import clock, open_registry

OFFSETS = [sign * seconds for sign in (1, -1) for seconds in (5, 30, 61, 3600)]


@pytest.mark.parametrize("seconds", OFFSETS)
def test_a_process_whose_date_is_wrong_judges_leases_as_the_others_do(
    place, monkeypatch, seconds: int
) -> None:
    right = open_registry(place.url, place.home)
    run = right.open_run({}, "", "me", idempotency_key=None, lease_seconds=60, shards=1).run.run
    assert right.take_over("gateway-1", "life", 60) == 1
    real = time.time
    monkeypatch.setattr(clock.time, "time", lambda: real() + seconds)
    wrong = open_registry(place.url, place.home)
    try:
        assert abs(wrong.now() - right.now()) < 2
        assert wrong.expired_runs() == []
        assert not wrong.force_end(run, "lost", only_if_expired=True)
        assert wrong.acquire_lease("gateway-1", "other", 60) is None
        assert wrong.leases()["gateway-1"].overdue_seconds < 0
        assert wrong.finished_before(wrong.now() + 1) == []
    finally:
        right.close()
        wrong.close()


def test_its_time_is_the_time_of_day_and_advances(place) -> None:
    registry = open_registry(place.url, place.home)
    first = registry.now()
    assert abs(first - time.time()) < 60
    assert registry.now() > first
    registry.close()


def test_after_a_boot_the_clock_of_an_embedded_registry_does_not_go_back(tmp_path, monkeypatch) -> None:
    registry = open_registry("sqlite", tmp_path)
    created = registry.open_run({}, "", "me", idempotency_key=None, lease_seconds=60, shards=1).run.created_at
    registry.close()
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    real = time.time
    monkeypatch.setattr(clock.time, "time", lambda: real() - 3600)
    booted = open_registry("sqlite", tmp_path)
    assert created <= booted.now() < created + 60
    booted.close()
