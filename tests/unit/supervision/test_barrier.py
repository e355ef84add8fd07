"""The barrier by examples: when a snapshot is read, what is decided on it, which runs are remembered."""

import pytest
from barrier_events import (
    RUN,
    STAGES,
    TABLES,
    end,
    ends_of,
    reports_of,
    small_run,
    snapshot,
    stats,
    worker_end,
)

from kopitiam.contracts.messages import Message, TableEnd, WorkerStats
from kopitiam.contracts.progress import Snapshot, Volume
from kopitiam.contracts.runs import OVER, RunState
from kopitiam.supervision.barrier import (
    Barriers,
    Decision,
    Event,
    FailRun,
    Forward,
    OpenBarrier,
    ReadSnapshot,
)

EXPECTED = small_run()
ENDS = ends_of(EXPECTED)
REPORTS = reports_of(EXPECTED, EXPECTED)
SHORT_OF_USERS = small_run(users={0: Volume()})
NOT_OPEN_YET = snapshot({}, {}, state=RunState.OPEN)
LAST = "check_users"


def feed(barriers: Barriers, *events: Event) -> list[Decision]:
    return [decision for event in events for decision in barriers.handle(event)]


def with_stages() -> Barriers:
    """Barriers that have handled a snapshot of the run, and so have its stages."""
    barriers = Barriers()
    assert barriers.handle(NOT_OPEN_YET) == []
    return barriers


def failure(decisions: list[Decision]) -> str:
    [decision] = decisions
    assert isinstance(decision, FailRun)
    assert decision.run == RUN
    return decision.reason


# -- when a snapshot is read


def test_the_last_report_triggers_a_snapshot() -> None:
    barriers = with_stages()
    before = [report for report in REPORTS if report.stage != LAST]
    assert feed(barriers, *ENDS, *before) == []
    assert barriers.handle(stats(LAST, 1, 10, expected=1)) == [ReadSnapshot(RUN)]


def test_the_last_end_triggers_a_snapshot_if_it_comes_after_the_reports() -> None:
    barriers = with_stages()
    assert feed(barriers, *REPORTS, *ENDS[:-1]) == []
    assert barriers.handle(ENDS[-1]) == [ReadSnapshot(RUN)]


def test_worker_ends_alone_trigger_a_snapshot() -> None:
    ended = [report for report in REPORTS if not isinstance(report, WorkerStats)]
    assert feed(with_stages(), *ENDS, *ended) == [ReadSnapshot(RUN)]


def test_the_first_end_of_a_run_with_unknown_stages_triggers_a_snapshot() -> None:
    barriers = Barriers()
    assert feed(barriers, *REPORTS) == []
    assert barriers.handle(ENDS[0]) == [ReadSnapshot(RUN)]
    assert feed(barriers, NOT_OPEN_YET, *ENDS[:-1]) == []


def test_messages_trigger_one_snapshot_until_it_is_handled() -> None:
    barriers = with_stages()
    assert feed(barriers, *ENDS, *REPORTS, *ENDS, *REPORTS) == [ReadSnapshot(RUN)]
    assert feed(barriers, snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]


def test_a_missing_table_triggers_no_snapshot() -> None:
    others = {table: shards for table, shards in EXPECTED.items() if table != "users"}
    assert feed(with_stages(), *ends_of(others), *reports_of(others, others)) == []


def test_the_last_end_of_an_empty_run_triggers_a_snapshot() -> None:
    empty = {table: {0: Volume(), 1: Volume()} for table in TABLES}
    *first, last = ends_of(empty)
    barriers = with_stages()
    assert feed(barriers, *first) == []
    assert barriers.handle(last) == [ReadSnapshot(RUN)]
    assert barriers.handle(snapshot(empty, {})) == [OpenBarrier(RUN)]


def test_an_empty_shard_needs_no_report() -> None:
    expected = small_run(users={0: Volume(1, 10), 1: Volume()})
    reports = [report for report in REPORTS if report.shard == 0]
    assert feed(with_stages(), *ends_of(expected), *reports) == [ReadSnapshot(RUN)]


def test_a_chunk_without_rows_needs_a_report() -> None:
    expected = small_run(users={0: Volume(1, 0)})
    others = [report for report in REPORTS if report.stage != LAST]
    barriers = with_stages()
    assert feed(barriers, *ends_of(expected), *others) == []
    assert barriers.handle(worker_end(LAST, 1, 0)) == [ReadSnapshot(RUN)]


def test_a_report_of_more_chunks_than_expected_triggers_a_snapshot_at_once() -> None:
    barriers = with_stages()
    assert feed(barriers, *ENDS) == []
    assert barriers.handle(stats("filter_year", 3, 30, expected=2)) == [ReadSnapshot(RUN)]


def test_messages_of_different_runs_are_counted_separately() -> None:
    barriers = with_stages()
    other = "another0another0"
    assert feed(barriers, *ends_of(EXPECTED, other), *REPORTS) == [ReadSnapshot(other)]
    assert feed(barriers, *ENDS) == [ReadSnapshot(RUN)]


def test_reports_of_stages_after_the_barrier_are_ignored() -> None:
    assert feed(with_stages(), worker_end("server_results", 1, 7), stats("sum_tpv", 3, 3)) == []


@pytest.mark.parametrize(
    "forged",
    [stats(LAST, 2, 20), end("users", (9, 90)), worker_end(LAST, 1, 11), end("nothing", (1, 1))],
    ids=str,
)
def test_the_next_snapshot_replaces_the_counts_of_a_forged_message(forged: Message) -> None:
    barriers = Barriers()
    feed(barriers, forged)
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]


# -- decisions on a snapshot


def test_every_snapshot_of_a_processed_sealed_run_opens_its_barrier() -> None:
    """If the run is still sealed, the previous decision was not written."""
    assert feed(Barriers(), *[snapshot(EXPECTED, EXPECTED)] * 2) == [OpenBarrier(RUN)] * 2


def test_a_snapshot_replaces_lost_messages() -> None:
    barriers = Barriers()
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert barriers.handle(worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]


def test_a_snapshot_of_an_open_run_opens_nothing() -> None:
    barriers = Barriers()
    partly = {"users": EXPECTED["users"]}
    assert barriers.handle(snapshot(partly, partly, state=RunState.OPEN)) == []
    assert feed(barriers, *ENDS, *REPORTS) == [ReadSnapshot(RUN)]


def test_a_pending_chunk_keeps_the_barrier_closed_even_if_the_counters_match() -> None:
    assert Barriers().handle(snapshot(EXPECTED, EXPECTED, pending=1)) == []


def test_a_missing_chunk_fails_the_run_with_table_and_shard() -> None:
    assert Barriers().handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert failure(feed(Barriers(), snapshot(EXPECTED, SHORT_OF_USERS))) == (
        "table users, shard 0: expected 1 chunk with 10 rows, processed 0 chunks with 0 rows,"
        " and none is pending"
    )


@pytest.mark.parametrize("users", [Volume(2, 20), Volume(1, 9), Volume(1, 11)])
def test_more_chunks_or_other_rows_than_expected_fail_the_run_with_the_figures(users: Volume) -> None:
    wrong = small_run(users={0: users})
    chunks = "1 chunk" if users.chunks == 1 else "2 chunks"
    for _ in range(2):  # until it is over
        assert failure(feed(Barriers(), snapshot(EXPECTED, wrong))) == (
            f"table users, shard 0: expected 1 chunk with 10 rows, processed {chunks} with {users.rows} rows"
        )


def test_a_chunk_that_was_counted_in_another_table_fails_the_run() -> None:
    swapped = small_run(transactions={0: Volume(2, 20)}, transaction_items={0: Volume()})
    assert failure(feed(Barriers(), snapshot(EXPECTED, swapped, pending=1))) == (
        "table transactions, shard 0: expected 1 chunk with 10 rows, processed 2 chunks with 20 rows"
    )


def test_a_sealed_run_without_an_end_fails() -> None:
    others = {table: shards for table, shards in EXPECTED.items() if table != "users"}
    assert failure(feed(Barriers(), snapshot(others, others))) == (
        "the run is sealed, yet table users has had no END"
    )


def test_a_table_that_the_run_does_not_need_fails_it() -> None:
    odd = small_run(vouchers={0: Volume(1, 1)})
    assert failure(feed(Barriers(), snapshot(EXPECTED, odd))) == "the run does not need table vouchers"


def test_a_run_that_needs_one_table_waits_for_that_one_only() -> None:
    stages = {"transactions": STAGES.of_table["transactions"]}
    expected = {"transactions": {0: Volume(1, 10)}}
    whole = Snapshot(RUN, RunState.SEALED, stages, expected, expected, 0)
    barriers = Barriers()
    assert barriers.handle(Snapshot(RUN, RunState.OPEN, stages, {}, {}, 0)) == []
    reports = [report for report in REPORTS if report.stage in stages["transactions"]]
    assert feed(barriers, *ends_of(expected), *reports) == [ReadSnapshot(RUN)]
    assert barriers.handle(whole) == [OpenBarrier(RUN)]


# -- after the barrier, and bounded memory


def test_a_final_run_is_only_forwarded() -> None:
    barriers = with_stages()
    feed(barriers, *ENDS)
    final = snapshot(EXPECTED, SHORT_OF_USERS, state=RunState.FINAL)
    assert feed(barriers, final, final) == [Forward(RUN), Forward(RUN)]
    assert feed(barriers, *REPORTS, stats(LAST, 5, 50, expected=1)) == []
    assert barriers.runs == ()


@pytest.mark.parametrize("state", OVER)
def test_late_messages_of_a_run_that_is_over_are_ignored(state: RunState) -> None:
    barriers = with_stages()
    feed(barriers, *ENDS)
    assert barriers.handle(snapshot(EXPECTED, EXPECTED, state=state)) == []
    unknown = [stats("filter_moon", 1, 1), end("vouchers", (1, 1)), stats(LAST, 9, 9, 9)]
    assert feed(barriers, *ENDS, *REPORTS, *unknown) == []
    assert barriers.runs == ()


def test_only_the_last_runs_that_are_over_are_remembered() -> None:
    barriers = Barriers(max_closed=2)
    names = (RUN, "run1", "run2")
    feed(barriers, *(Snapshot(name, RunState.DONE, {}, {}, {}, 0) for name in names))
    assert feed(barriers, ENDS[0], end("users", (1, 1))) == [ReadSnapshot(RUN)]


def test_runs_known_only_by_messages_are_bounded_in_number() -> None:
    barriers = Barriers(max_runs=3)
    for i in range(10):
        barriers.handle(TableEnd(run=f"run{i}", table="users", shards={}))
    assert barriers.runs == ("run7", "run8", "run9")


def test_a_run_with_recent_messages_is_kept_longer_than_stray_ones() -> None:
    barriers = Barriers(max_runs=2)
    feed(barriers, NOT_OPEN_YET)
    decisions: list[Decision] = []
    for i, event in enumerate([*ENDS, *REPORTS]):
        stray = TableEnd(run=f"run{i}", table="users", shards={})
        decisions += [each for each in feed(barriers, stray, event) if each.run == RUN]
    assert decisions == [ReadSnapshot(RUN)]
