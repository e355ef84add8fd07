"""The barrier by examples: when the registry is asked, what it then decides, what is forgotten."""

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


def known() -> Barriers:
    """Barriers that have seen the run, and know its stages."""
    barriers = Barriers()
    assert barriers.handle(NOT_OPEN_YET) == []
    return barriers


def failure(decisions: list[Decision]) -> str:
    [decision] = decisions
    assert isinstance(decision, FailRun)
    assert decision.run == RUN
    return decision.reason


# -- when the registry is asked


def test_the_registry_is_asked_with_the_last_report() -> None:
    barriers = known()
    before = [report for report in REPORTS if report.stage != LAST]
    assert feed(barriers, *ENDS, *before) == []
    assert barriers.handle(stats(LAST, 1, 10, expected=1)) == [ReadSnapshot(RUN)]


def test_the_registry_is_asked_with_the_last_end_if_that_comes_late() -> None:
    barriers = known()
    assert feed(barriers, *REPORTS, *ENDS[:-1]) == []
    assert barriers.handle(ENDS[-1]) == [ReadSnapshot(RUN)]


def test_the_end_of_a_worker_is_as_good_as_its_statistics() -> None:
    ended = [report for report in REPORTS if not isinstance(report, WorkerStats)]
    assert feed(known(), *ENDS, *ended) == [ReadSnapshot(RUN)]


def test_a_run_whose_stages_are_not_known_is_looked_at_with_its_first_end() -> None:
    barriers = Barriers()
    assert feed(barriers, *REPORTS) == []
    assert barriers.handle(ENDS[0]) == [ReadSnapshot(RUN)]
    assert feed(barriers, NOT_OPEN_YET, *ENDS[:-1]) == []


def test_messages_ask_once_until_the_snapshot_comes() -> None:
    barriers = known()
    assert feed(barriers, *ENDS, *REPORTS, *ENDS, *REPORTS) == [ReadSnapshot(RUN)]
    assert feed(barriers, snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]


def test_all_tables_but_one_are_not_enough() -> None:
    others = {table: shards for table, shards in EXPECTED.items() if table != "users"}
    assert feed(known(), *ends_of(others), *reports_of(others, others)) == []


def test_an_empty_run_is_looked_at_with_its_last_end() -> None:
    empty = {table: {0: Volume(), 1: Volume()} for table in TABLES}
    *first, last = ends_of(empty)
    barriers = known()
    assert feed(barriers, *first) == []
    assert barriers.handle(last) == [ReadSnapshot(RUN)]
    assert barriers.handle(snapshot(empty, {})) == [OpenBarrier(RUN)]


def test_an_empty_shard_has_nothing_to_report() -> None:
    expected = small_run(users={0: Volume(1, 10), 1: Volume()})
    reports = [report for report in REPORTS if report.shard == 0]
    assert feed(known(), *ends_of(expected), *reports) == [ReadSnapshot(RUN)]


def test_a_chunk_without_rows_has_to_be_processed_too() -> None:
    expected = small_run(users={0: Volume(1, 0)})
    others = [report for report in REPORTS if report.stage != LAST]
    barriers = known()
    assert feed(barriers, *ends_of(expected), *others) == []
    assert barriers.handle(worker_end(LAST, 1, 0)) == [ReadSnapshot(RUN)]


def test_a_worker_that_reports_more_than_it_expects_is_looked_into_at_once() -> None:
    barriers = known()
    assert feed(barriers, *ENDS) == []
    assert barriers.handle(stats("filter_year", 3, 30, expected=2)) == [ReadSnapshot(RUN)]


def test_runs_do_not_mix() -> None:
    barriers = known()
    other = "another0another0"
    assert feed(barriers, *ends_of(EXPECTED, other), *REPORTS) == [ReadSnapshot(other)]
    assert feed(barriers, *ENDS) == [ReadSnapshot(RUN)]


def test_stages_behind_the_barrier_do_not_matter() -> None:
    assert feed(known(), worker_end("server_results", 1, 7), stats("sum_tpv", 3, 3)) == []


@pytest.mark.parametrize(
    "forged",
    [stats(LAST, 2, 20), end("users", (9, 90)), worker_end(LAST, 1, 11), end("nothing", (1, 1))],
    ids=str,
)
def test_what_a_forged_message_told_is_gone_with_the_next_snapshot(forged: Message) -> None:
    barriers = Barriers()
    feed(barriers, forged)
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]


# -- what the registry decides


def test_a_snapshot_of_a_processed_run_opens_its_barrier_again_and_again() -> None:
    """It is still sealed, so that the decision before was not written."""
    assert feed(Barriers(), *[snapshot(EXPECTED, EXPECTED)] * 2) == [OpenBarrier(RUN)] * 2


def test_a_snapshot_stands_for_all_messages_that_were_lost() -> None:
    barriers = Barriers()
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert barriers.handle(worker_end(LAST, 1, 10)) == [ReadSnapshot(RUN)]


def test_a_snapshot_of_an_open_run_opens_nothing() -> None:
    barriers = Barriers()
    partly = {"users": EXPECTED["users"]}
    assert barriers.handle(snapshot(partly, partly, state=RunState.OPEN)) == []
    assert feed(barriers, *ENDS, *REPORTS) == [ReadSnapshot(RUN)]


def test_nothing_opens_while_a_chunk_is_pending_whatever_the_counters_say() -> None:
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


# -- after the barrier, and the end of memory


def test_a_final_run_is_forwarded_and_nothing_else() -> None:
    barriers = known()
    feed(barriers, *ENDS)
    final = snapshot(EXPECTED, SHORT_OF_USERS, state=RunState.FINAL)
    assert feed(barriers, final, final) == [Forward(RUN), Forward(RUN)]
    assert feed(barriers, *REPORTS, stats(LAST, 5, 50, expected=1)) == []
    assert barriers.runs == ()


@pytest.mark.parametrize("state", OVER)
def test_late_messages_do_not_bring_back_a_run_that_is_over(state: RunState) -> None:
    barriers = known()
    feed(barriers, *ENDS)
    assert barriers.handle(snapshot(EXPECTED, EXPECTED, state=state)) == []
    strange = [stats("filter_moon", 1, 1), end("vouchers", (1, 1)), stats(LAST, 9, 9, 9)]
    assert feed(barriers, *ENDS, *REPORTS, *strange) == []
    assert barriers.runs == ()


def test_only_the_last_runs_that_are_over_are_remembered() -> None:
    barriers = Barriers(max_closed=2)
    names = (RUN, "run1", "run2")
    feed(barriers, *(Snapshot(name, RunState.DONE, {}, {}, {}, 0) for name in names))
    assert feed(barriers, ENDS[0], end("users", (1, 1))) == [ReadSnapshot(RUN)]


def test_runs_known_by_stray_messages_are_bounded() -> None:
    barriers = Barriers(max_runs=3)
    for i in range(10):
        barriers.handle(TableEnd(run=f"run{i}", table="users", shards={}))
    assert barriers.runs == ("run7", "run8", "run9")


def test_a_run_that_is_still_heard_of_outlives_stray_ones() -> None:
    barriers = Barriers(max_runs=2)
    feed(barriers, NOT_OPEN_YET)
    decisions: list[Decision] = []
    for i, event in enumerate([*ENDS, *REPORTS]):
        stray = TableEnd(run=f"run{i}", table="users", shards={})
        decisions += [each for each in feed(barriers, stray, event) if each.run == RUN]
    assert decisions == [ReadSnapshot(RUN)]
