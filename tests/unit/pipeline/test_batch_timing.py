"""When a batch begins: it is worth its planning, a client waits for it, or a core is idle."""

from dataclasses import replace

import pytest

from kopitiam.pipeline import batch_timing
from kopitiam.pipeline.batch_timing import LONG_SECONDS, SHORT_SECONDS, Waiting, Watch, is_due

CALM = Waiting(
    is_half_full=False, has_complete_run=False, has_ended_table=False, has_idle_core=False, seconds=0.0
)


@pytest.mark.parametrize("reason", ["is_half_full", "has_complete_run"])
def test_half_a_batch_or_a_run_that_was_sent_completely_waits_no_longer(reason):
    assert is_due(replace(CALM, **{reason: True}))


@pytest.mark.parametrize(
    ("reasons", "patience"),
    [
        ({}, LONG_SECONDS),
        ({"has_idle_core": True}, SHORT_SECONDS),
        ({"has_ended_table": True}, SHORT_SECONDS),
    ],
)
def test_a_few_chunks_wait_for_more_unless_a_core_is_idle_or_their_table_has_ended(reasons, patience):
    waiting = replace(CALM, **reasons)
    assert not is_due(replace(waiting, seconds=patience - 0.001))
    assert is_due(replace(waiting, seconds=patience))


@pytest.fixture
def machine(monkeypatch):
    """A clock and the idle seconds of the cores, which a test sets."""
    times = {"now": 100.0, "idle": 50.0}
    monkeypatch.setattr(batch_timing.time, "monotonic", lambda: times["now"])
    monkeypatch.setattr(batch_timing, "_cpu_seconds", lambda: (times["now"], times["idle"]))
    return times


@pytest.mark.parametrize(("idle_seconds", "has_idle_core"), [(0.0, False), (0.04, False), (0.11, True)])
def test_a_core_is_idle_if_the_cores_rested_half_of_the_time_since_the_last_look(
    machine, idle_seconds, has_idle_core
):
    watch = Watch()
    machine["now"] += 10  # long ago: only the time since the last look counts
    machine["idle"] += 5
    watch.has_idle_core()
    machine["now"] += 0.1
    machine["idle"] += idle_seconds
    assert watch.has_idle_core() is has_idle_core


def test_the_cores_of_a_cluster_count_as_idle(machine):
    assert Watch(is_cluster=True).has_idle_core()


def test_the_wait_begins_when_nothing_waited(machine):
    """A chunk that is seen after a long batch may have waited as long as the batch took."""
    watch = Watch()
    machine["now"] += 2
    watch.restart()
    machine["now"] += 3
    assert watch.seconds == pytest.approx(3)
