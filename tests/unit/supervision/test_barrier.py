"""The barrier by examples: when it opens, what fails a run, what is forgotten."""

import pytest
from barrier_events import (
    RUN,
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
from kopitiam.contracts.runs import OVER, RunState
from kopitiam.contracts.stages import Volume
from kopitiam.supervision.barrier import Barriers, Decision, Event, FailRun, Forward, OpenBarrier

EXPECTED = small_run()
ENDS = ends_of(EXPECTED)
REPORTS = reports_of(EXPECTED, EXPECTED)
SHORT_OF_USERS = small_run(users={0: Volume()})


def feed(barriers: Barriers, *events: Event) -> list[Decision]:
    return [decision for event in events for decision in barriers.handle(event)]


def failure(decisions: list[Decision]) -> str:
    [decision] = decisions
    assert isinstance(decision, FailRun)
    assert decision.run == RUN
    return decision.reason


# -- opening


def test_the_barrier_opens_with_the_last_report() -> None:
    barriers = Barriers()
    last = stats("join_users", 1, 10, expected=1)
    before = [report for report in REPORTS if report.stage != "join_users"]
    assert feed(barriers, *ENDS, *before) == []
    assert barriers.handle(last) == [OpenBarrier(RUN)]


def test_the_barrier_opens_with_the_last_end_if_that_comes_late() -> None:
    barriers = Barriers()
    assert feed(barriers, *REPORTS, *ENDS[:-1]) == []
    assert barriers.handle(ENDS[-1]) == [OpenBarrier(RUN)]


def test_the_end_of_a_worker_is_as_good_as_its_statistics() -> None:
    ended = [report for report in REPORTS if not isinstance(report, WorkerStats)]
    assert feed(Barriers(), *ENDS, *ended) == [OpenBarrier(RUN)]


def test_messages_open_a_barrier_once() -> None:
    barriers = Barriers()
    assert feed(barriers, *ENDS, *REPORTS) == [OpenBarrier(RUN)]
    assert feed(barriers, *ENDS, *REPORTS) == []


def test_four_tables_are_not_enough() -> None:
    four = {table: shards for table, shards in EXPECTED.items() if table != "users"}
    assert feed(Barriers(), *ends_of(four), *reports_of(four, four)) == []


def test_an_empty_run_opens_with_its_last_end() -> None:
    empty = {table: {0: Volume(), 1: Volume()} for table in TABLES}
    *first, last = ends_of(empty)
    barriers = Barriers()
    assert feed(barriers, *first) == []
    assert barriers.handle(last) == [OpenBarrier(RUN)]


def test_an_empty_shard_has_nothing_to_report() -> None:
    expected = small_run(users={0: Volume(1, 10), 1: Volume()})
    reports = [report for report in REPORTS if report.shard == 0]
    assert feed(Barriers(), *ends_of(expected), *reports) == [OpenBarrier(RUN)]


def test_a_chunk_without_rows_has_to_be_processed_too() -> None:
    expected = small_run(users={0: Volume(1, 0)})
    others = [report for report in REPORTS if report.stage != "join_users"]
    barriers = Barriers()
    assert feed(barriers, *ends_of(expected), *others) == []
    assert barriers.handle(worker_end("join_users", 1, 0)) == [OpenBarrier(RUN)]


def test_a_late_report_of_less_changes_nothing() -> None:
    barriers = Barriers()
    feed(barriers, *ENDS, worker_end("join_users", 1, 10), stats("join_users", 0, 0, expected=1))
    others = [report for report in REPORTS if report.stage != "join_users"]
    assert feed(barriers, *others) == [OpenBarrier(RUN)]


def test_runs_do_not_mix() -> None:
    barriers = Barriers()
    feed(barriers, *ends_of(EXPECTED, "another0another0"), *REPORTS)
    assert feed(barriers, *ENDS) == [OpenBarrier(RUN)]


def test_stages_behind_the_barrier_are_not_its_business() -> None:
    barriers = Barriers()
    assert feed(barriers, worker_end("server_results", 1, 7), stats("sum_tpv", 3, 3)) == []
    assert barriers.runs == ()


# -- what fails a run


def test_more_chunks_than_expected_fail_the_run_with_the_figures() -> None:
    reason = failure(feed(Barriers(), *ENDS, stats("filter_year", 3, 30, expected=2)))
    assert reason == (
        "stage filter_year, shard 0: expected 2 chunks with 20 rows, processed 3 chunks with 30 rows"
    )


@pytest.mark.parametrize("rows", [9, 11])
def test_all_chunks_with_other_rows_fail_the_run(rows: int) -> None:
    reason = failure(feed(Barriers(), *ENDS, worker_end("join_users", 1, rows)))
    assert reason == (
        f"stage join_users, shard 0: expected 1 chunk with 10 rows, processed 1 chunk with {rows} rows"
    )


def test_a_worker_that_expects_something_else_fails_the_run() -> None:
    reason = failure(feed(Barriers(), *ENDS, stats("filter_hour", 0, 0, expected=2)))
    assert reason == (
        "stage filter_hour, shard 0: expected 1 chunk with 10 rows, processed 0 chunks with 0 rows,"
        " and it expects 2 chunks"
    )


def test_a_worker_that_ends_early_fails_the_run() -> None:
    assert "it expects 1 chunk" in failure(feed(Barriers(), *ENDS, worker_end("filter_year", 1, 10)))


def test_a_worker_that_changes_its_mind_fails_the_run_even_before_end() -> None:
    told = [stats("filter_year", 1, 10, expected=2), stats("filter_year", 1, 10, expected=3)]
    assert failure(feed(Barriers(), *told)) == (
        "stage filter_year, shard 0: it expected 2 chunks, and then 3; processed 1 chunk with 10 rows"
    )


def test_what_came_before_end_is_judged_when_end_comes() -> None:
    barriers = Barriers()
    assert feed(barriers, stats("join_users", 2, 20)) == []
    assert "processed 2 chunks with 20 rows" in failure(feed(barriers, end("users", (1, 10))))


def test_reports_that_disagree_before_end_fail_the_run_in_any_order() -> None:
    told = [stats("join_users", 1, 10), stats("join_users", 1, 8)]
    for reports in (told, told[::-1]):
        reason = failure(feed(Barriers(), *reports, end("users", (1, 10))))
        assert reason.endswith("processed 1 chunk with 8 rows")


def test_a_stage_is_judged_when_all_its_tables_have_had_end() -> None:
    barriers = Barriers()
    assert feed(barriers, stats("filter_year", 9, 90), end("transactions", (1, 10))) == []
    assert "stage filter_year" in failure(feed(barriers, end("transaction_items", (1, 10))))


@pytest.mark.parametrize(("stage", "shard"), [("join_users", 7), ("filter_moon", 0)])
def test_work_that_end_knows_nothing_of_fails_the_run(stage: str, shard: int) -> None:
    reason = failure(feed(Barriers(), *ENDS, stats(stage, 1, 10, shard)))
    assert reason == (
        f"stage {stage}, shard {shard}: expected 0 chunks with 0 rows, processed 1 chunk with 10 rows"
    )


def test_a_shard_that_end_knows_nothing_of_may_say_that_it_did_nothing() -> None:
    assert feed(Barriers(), *ENDS, stats("join_users", 0, 0, 7, expected=0)) == []


def test_the_end_of_an_unknown_table_fails_the_run() -> None:
    assert failure(feed(Barriers(), end("vouchers", (1, 10)))) == (
        "END came for table vouchers, which no stage takes"
    )


def test_two_ends_with_other_figures_fail_the_run() -> None:
    assert failure(feed(Barriers(), end("users", (1, 10)), end("users", (1, 11)))) == (
        "table users, shard 0: END told 1 chunk with 10 rows, and then 1 chunk with 11 rows"
    )


def test_a_run_fails_once_by_messages_and_again_by_every_snapshot_until_it_is_over() -> None:
    barriers = Barriers()
    over_count = stats("join_users", 2, 20)
    failure(feed(barriers, *ENDS, over_count))
    assert feed(barriers, over_count, *REPORTS) == []
    twice = small_run(users={0: Volume(2, 20)})
    for _ in range(2):
        assert "processed 2 chunks with 20 rows" in failure([*barriers.handle(snapshot(EXPECTED, twice))])
    assert barriers.handle(snapshot(EXPECTED, twice, state=RunState.FAILED)) == []


@pytest.mark.parametrize(
    "forged",
    [
        stats("join_users", 2, 20),
        end("users", (9, 90)),
        worker_end("join_users", 1, 11),
        end("nothing", (1, 1)),
    ],
    ids=str,
)
def test_what_a_forged_message_told_is_gone_with_the_next_snapshot(forged: Message) -> None:
    barriers = Barriers()
    feed(barriers, forged)
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, worker_end("join_users", 1, 10)) == [OpenBarrier(RUN)]


# -- snapshots


def test_a_snapshot_of_a_processed_run_opens_its_barrier_again_and_again() -> None:
    """It is still sealed, so that the decision before was not written."""
    barriers = Barriers()
    assert feed(barriers, *ENDS, *REPORTS) == [OpenBarrier(RUN)]
    assert feed(barriers, *[snapshot(EXPECTED, EXPECTED)] * 2) == [OpenBarrier(RUN)] * 2
    assert feed(barriers, *REPORTS) == []


def test_a_snapshot_stands_for_all_messages_that_were_lost() -> None:
    barriers = Barriers()
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert barriers.handle(worker_end("join_users", 1, 10)) == [OpenBarrier(RUN)]


def test_a_snapshot_of_an_open_run_opens_nothing() -> None:
    barriers = Barriers()
    partly = {"users": EXPECTED["users"]}
    assert barriers.handle(snapshot(partly, partly, state=RunState.OPEN)) == []
    assert feed(barriers, *ENDS, *REPORTS) == [OpenBarrier(RUN)]


def test_an_older_snapshot_takes_back_what_messages_told_until_the_next_one() -> None:
    barriers = Barriers()
    nothing = {table: {0: Volume()} for table in TABLES}
    others = [report for report in REPORTS if report.stage != "join_users"]
    feed(barriers, *ENDS, *others)
    older = snapshot({"stores": EXPECTED["stores"]}, nothing, pending=5, state=RunState.OPEN)
    assert barriers.handle(older) == []
    assert barriers.handle(worker_end("join_users", 1, 10)) == []
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]


def test_a_snapshot_is_right_about_the_rows_of_as_many_chunks() -> None:
    barriers = Barriers()
    assert barriers.handle(stats("join_users", 1, 99)) == []
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]


def test_messages_do_not_open_what_a_snapshot_has_opened() -> None:
    barriers = Barriers()
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]
    assert feed(barriers, *ENDS, *REPORTS) == []


def test_messages_do_not_open_it_again_after_an_old_snapshot() -> None:
    barriers = Barriers()
    assert barriers.handle(snapshot(EXPECTED, EXPECTED, state=RunState.FINAL)) == [Forward(RUN)]
    assert barriers.handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert feed(barriers, *ENDS, *REPORTS) == []


def test_nothing_opens_while_a_chunk_is_pending_whatever_the_counters_say() -> None:
    assert Barriers().handle(snapshot(EXPECTED, EXPECTED, pending=1)) == []


def test_a_missing_chunk_fails_the_run_with_table_and_shard() -> None:
    assert Barriers().handle(snapshot(EXPECTED, SHORT_OF_USERS, pending=1)) == []
    assert failure(feed(Barriers(), snapshot(EXPECTED, SHORT_OF_USERS))) == (
        "table users, shard 0: expected 1 chunk with 10 rows, processed 0 chunks with 0 rows,"
        " and none is pending"
    )


def test_a_chunk_that_was_counted_in_another_table_fails_the_run() -> None:
    swapped = small_run(transactions={0: Volume(2, 20)}, transaction_items={0: Volume()})
    assert failure(feed(Barriers(), snapshot(EXPECTED, swapped, pending=1))) == (
        "table transactions, shard 0: expected 1 chunk with 10 rows, processed 2 chunks with 20 rows"
    )


def test_a_sealed_run_without_an_end_fails() -> None:
    four = {table: shards for table, shards in EXPECTED.items() if table != "users"}
    assert failure(feed(Barriers(), snapshot(four, four))) == (
        "the run is sealed, yet table users has had no END"
    )


def test_an_unknown_table_in_the_registry_fails_the_run() -> None:
    odd = small_run(vouchers={0: Volume(1, 1)})
    assert failure(feed(Barriers(), snapshot(EXPECTED, odd))) == "no stage takes table vouchers"


# -- after the barrier, and the end of memory


def test_a_final_run_is_forwarded_and_nothing_else() -> None:
    barriers = Barriers()
    feed(barriers, *ENDS)
    final = snapshot(EXPECTED, SHORT_OF_USERS, state=RunState.FINAL)
    assert feed(barriers, final, final) == [Forward(RUN), Forward(RUN)]
    assert feed(barriers, *REPORTS, stats("join_users", 5, 50)) == []
    assert barriers.runs == ()


@pytest.mark.parametrize("state", OVER)
def test_late_messages_do_not_bring_back_a_run_that_is_over(state: RunState) -> None:
    barriers = Barriers()
    feed(barriers, *ENDS)
    assert barriers.handle(snapshot(EXPECTED, EXPECTED, state=state)) == []
    strange = [stats("filter_moon", 1, 1), end("vouchers", (1, 1)), stats("join_users", 9, 9, 9)]
    assert feed(barriers, *ENDS, *REPORTS, *strange) == []
    assert barriers.runs == ()


def test_only_the_last_runs_that_are_over_are_remembered() -> None:
    barriers = Barriers(most_closed=2)
    over = [snapshot({}, {}, state=RunState.DONE)]
    over += [type(over[0])(f"run{i}", RunState.DONE, {}, {}, 0) for i in range(2)]
    feed(barriers, *over)
    assert feed(barriers, *ENDS, *REPORTS) == [OpenBarrier(RUN)]


def test_runs_known_by_stray_messages_are_bounded() -> None:
    barriers = Barriers(most_runs=3)
    for i in range(10):
        barriers.handle(TableEnd(run=f"run{i}", table="users", shards={}))
    assert barriers.runs == ("run7", "run8", "run9")


def test_a_run_that_is_still_heard_of_outlives_stray_ones() -> None:
    barriers = Barriers(most_runs=2)
    events = [*ENDS, *REPORTS]
    decisions: list[Decision] = []
    for i, event in enumerate(events):
        decisions += feed(barriers, TableEnd(run=f"run{i}", table="users", shards={}), event)
    assert decisions == [OpenBarrier(RUN)]


def test_a_decision_is_remembered_when_its_figures_are_dropped() -> None:
    barriers = Barriers(most_runs=1)
    assert feed(barriers, *ENDS, *REPORTS) == [OpenBarrier(RUN)]
    barriers.handle(TableEnd(run="stray", table="users", shards={}))
    assert feed(barriers, *ENDS, *REPORTS) == []
    assert barriers.handle(snapshot(EXPECTED, EXPECTED)) == [OpenBarrier(RUN)]
