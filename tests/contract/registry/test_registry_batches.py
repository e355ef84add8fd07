"""Batches of the stream: committed once, counted exactly, refused if they do not continue the positions."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from kopitiam.contracts.batches import Batch, Committed, Partial, Processed
from kopitiam.contracts.errors import ForeignCheckpoint, RunNotFound, StaleEpoch
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import RunFigures, RunState
from kopitiam.registry import Fence
from kopitiam.registry.batches import KEPT

NOBODYS = "0" * 24


def users(run: str, chunks: int = 1, shard: int = 0) -> Processed:
    return Processed(run, "users", shard, chunks, 10 * chunks)


@pytest.fixture
def run(open_run, put) -> str:
    """With six chunks in each of two shards."""
    run = open_run(shards=2)
    for number in range(12):
        put(run, number)
    return run


@pytest.fixture
def commit(registry) -> Callable[..., Committed]:
    """Commits a batch of shard 0, with defaults for everything that the test does not set."""

    def committed(number: int, after: int, upto: int, *processed: Processed, **others: Any) -> Committed:
        arguments = {"query": "q", "spans": {0: (after, upto)}} | others
        return registry.commit_batch(Batch(batch=number, processed=processed, **arguments))

    return committed


def test_a_batch_moves_positions_counts_and_keeps_partials(registry, run) -> None:
    partials = (Partial(run, "p/1", 0, 7), Partial(run, "p/2", 1, 8))
    processed = (users(run, 2), users(run, 3, shard=1), Processed(run, "stores", 0, 1, 4))
    batch = Batch("q", 0, {0: (0, 3), 1: (0, 3)}, processed, partials)
    assert registry.commit_batch(batch) == Committed("committed", frozenset())
    assert registry.positions([1, 0, 2]) == {0: 3, 1: 3, 2: 0}
    assert registry.progress(run) == {
        "stores": {0: Volume(1, 4)},
        "users": {0: Volume(2, 20), 1: Volume(3, 30)},
    }
    assert registry.partials(run) == list(partials)


def test_before_the_first_batch_nothing_is_processed(registry, run) -> None:
    assert registry.positions([0, 1]) == {0: 0, 1: 0}
    assert registry.positions([]) == {}
    assert registry.progress(run) == {}
    assert registry.partials(run) == []


def test_what_batches_process_adds_up(registry, run, commit) -> None:
    commit(0, 0, 2, users(run, 2))
    commit(1, 2, 5, users(run, 1), users(run, 2))
    assert registry.progress(run) == {"users": {0: Volume(5, 50)}}
    assert registry.positions([0]) == {0: 5}


def test_a_repeated_batch_changes_nothing(registry, run, open_run, commit) -> None:
    over = open_run()
    registry.force_end(over, "enough")
    arguments: dict[str, Any] = {"partials": (Partial(run, "p/1"),)}
    first = commit(0, 0, 2, users(run, 2), users(over), **arguments)
    commit(1, 2, 4, users(run, 2))
    before = registry.run_account(run), registry.partials(run), registry.positions([0])
    again = commit(0, 0, 2, users(run, 2), users(over), **arguments)
    assert (first.outcome, again.outcome) == ("committed", "repeated")
    assert first.ignored == again.ignored == {over}
    assert commit(1, 2, 4).outcome == "repeated"
    assert (registry.run_account(run), registry.partials(run), registry.positions([0])) == before


@pytest.mark.parametrize("spans", [{0: (0, 3)}, {0: (0, 2), 1: (0, 1)}, {1: (0, 2)}, {}])
def test_a_batch_that_comes_again_with_other_spans_is_foreign(registry, run, commit, spans) -> None:
    commit(0, 0, 2, users(run, 2))
    with pytest.raises(ForeignCheckpoint, match=r"batch 0 of q .*\[0, 2\]"):
        registry.commit_batch(Batch("q", 0, spans))
    assert registry.positions([0, 1]) == {0: 2, 1: 0}


@pytest.mark.parametrize(("after", "upto"), [(0, 2), (1, 4), (3, 4)])
def test_a_batch_that_does_not_begin_where_its_shard_stands_is_foreign(
    registry, run, commit, after, upto
) -> None:
    commit(0, 0, 2, users(run, 2))
    before = registry.run_account(run)
    with pytest.raises(ForeignCheckpoint, match=f"from {after} to {upto} in lane 0, which stands at 2"):
        commit(0, after, upto, users(run), query="another", partials=(Partial(run, "p/1"),))
    assert (registry.run_account(run), registry.partials(run)) == (before, [])
    assert registry.positions([0]) == {0: 2}
    assert commit(0, 2, 3, users(run), query="another").outcome == "committed"


def test_a_shard_that_was_never_processed_stands_at_its_beginning(registry, run, commit) -> None:
    with pytest.raises(ForeignCheckpoint, match="stands at 0"):
        commit(0, 2, 4, users(run))
    assert registry.positions([0]) == {0: 0}


def test_one_wrong_span_moves_no_position(registry, run) -> None:
    with pytest.raises(ForeignCheckpoint, match="lane 1"):
        registry.commit_batch(Batch("q", 0, {0: (0, 2), 1: (1, 2)}, (users(run, 2),)))
    assert registry.positions([0, 1]) == {0: 0, 1: 0}
    assert registry.progress(run) == {}


def test_a_batch_that_goes_beyond_the_log_is_foreign(registry, run, commit) -> None:
    with pytest.raises(ForeignCheckpoint, match="from 0 to 7 in lane 0, whose log ends at 6"):
        commit(0, 0, 7, users(run))
    with pytest.raises(ForeignCheckpoint, match="ends at 0"):
        commit(0, 0, 1, spans={9: (0, 1)})
    assert registry.positions([0, 9]) == {0: 0, 9: 0}


def test_a_batch_may_be_empty(registry, run, commit) -> None:
    assert commit(0, 0, 0) == Committed("committed", frozenset())
    assert registry.commit_batch(Batch("q", 1, {})).outcome == "committed"
    assert registry.commit_batch(Batch("q", 1, {})).outcome == "repeated"
    assert registry.positions([0]) == {0: 0}


@pytest.mark.parametrize("to", [RunState.FAILED, RunState.ENDED])
def test_runs_that_are_over_or_gone_are_ignored(registry, run, open_run, commit, to) -> None:
    over = open_run()
    registry.move(over, to)
    before = registry.run_account(over)
    partials = tuple(Partial(name, f"p/{name}") for name in (run, over, NOBODYS))
    committed = commit(0, 0, 4, users(run), users(over), users(NOBODYS), partials=partials)
    assert committed == Committed("committed", frozenset({over, NOBODYS}))
    assert (registry.run_account(over), registry.partials(over)) == (before, [])
    assert registry.progress(run) == {"users": {0: Volume(1, 10)}}
    assert registry.partial_paths("p/") == {f"p/{run}"}
    assert registry.positions([0]) == {0: 4}


@pytest.mark.parametrize("state", [RunState.OPEN, RunState.SEALED, RunState.FINAL])
def test_a_run_that_is_not_over_is_counted_in_every_state(registry, run, commit, state) -> None:
    for step in list(RunState)[1 : list(RunState).index(state) + 1]:
        registry.move(run, step)
    assert commit(0, 0, 1, users(run)).ignored == frozenset()
    assert registry.progress(run) == {"users": {0: Volume(1, 10)}}


def test_a_batch_increases_the_version_of_its_runs_only(registry, run, open_run, commit) -> None:
    other = open_run()
    before = registry.version(run), registry.version(other)
    commit(0, 0, 1, users(run))
    assert registry.version(run) > before[0]
    assert registry.version(other) == before[1]


def test_a_superseded_pipeline_commits_nothing(registry, run) -> None:
    batch = Batch("q", 0, {0: (0, 2)}, (users(run, 2),), (Partial(run, "p/1"),))
    old = Fence("pipeline-1", registry.take_over("pipeline-1", "life-1", 10), "life-1")
    new = Fence("pipeline-1", registry.take_over("pipeline-1", "life-2", 10), "life-2")
    with pytest.raises(StaleEpoch):
        registry.commit_batch(batch, fence=old)
    assert (registry.progress(run), registry.positions([0])) == ({}, {0: 0})
    assert registry.commit_batch(batch, fence=new).outcome == "committed"
    with pytest.raises(StaleEpoch):
        registry.commit_batch(batch, fence=old)


def test_the_last_batches_of_a_query_are_known_and_older_ones_are_foreign(registry, run, commit) -> None:
    commit(0, 0, 1, users(run))
    commit(0, 1, 2, users(run), query="another")
    for number in range(1, KEPT + 1):
        commit(number, 2, 2)
    assert commit(1, 2, 2).outcome == "repeated"
    with pytest.raises(ForeignCheckpoint, match="stands at 2"):
        commit(0, 0, 1, users(run))
    assert commit(0, 1, 2, query="another").outcome == "repeated"


def test_a_new_query_replaces_earlier_ones(registry, run, commit) -> None:
    commit(0, 0, 1, users(run))
    commit(1, 1, 2, users(run))
    elsewhere = {"query": "elsewhere", "spans": {1: (0, 1)}}
    commit(0, 0, 1, users(run, shard=1), **elsewhere)
    commit(0, 2, 3, users(run), query="new")

    for number, after, upto in ((1, 1, 2), (2, 2, 3)):  # as if its checkpoint were restored
        with pytest.raises(ForeignCheckpoint, match="stands at 3"):
            commit(number, after, upto, users(run))
    assert commit(0, 0, 1, **elsewhere).outcome == "repeated"
    assert commit(0, 2, 3, query="new").outcome == "repeated"
    assert commit(1, 3, 4, users(run), query="new").outcome == "committed"
    assert registry.progress(run) == {"users": {0: Volume(4, 40), 1: Volume(1, 10)}}


def test_a_batch_is_committed_whole_or_not_at_all(registry, run, commit) -> None:
    commit(0, 0, 1, users(run), partials=(Partial(run, "p/1"),))
    before = registry.run_account(run)
    with pytest.raises(IntegrityError):
        commit(1, 1, 2, users(run), partials=(Partial(run, "p/2"), Partial(run, "p/1")))
    assert registry.run_account(run) == before
    assert registry.partial_paths("") == {"p/1"}
    assert registry.positions([0]) == {0: 1}
    assert commit(1, 1, 2, users(run), partials=(Partial(run, "p/2"),)).outcome == "committed"


@pytest.mark.parametrize(
    "flaw",
    [
        {"spans": {0: (2, 1)}},
        {"spans": {0: (-1, 1)}},
        {"spans": {-1: (0, 1)}},
        {"spans": {0: (0, 2**63)}},
        {"batch": -1},
        {"processed": (Processed(NOBODYS, "users; --", 0, 1, 1),)},
        {"processed": (Processed(NOBODYS, "users", 0, -1, 1),)},
        {"processed": (Processed(NOBODYS, "users", 0, 1, -1),)},
        {"processed": (Processed(NOBODYS, "users", 1, 1, 1),)},
        {"partials": (Partial(NOBODYS, "p", 0, -1),)},
    ],
)
def test_an_invalid_batch_is_refused_before_the_database(registry, flaw) -> None:
    sound: dict[str, Any] = {"query": "q", "batch": 0, "spans": {0: (0, 0)}}
    with pytest.raises(ValueError, match=r"expected|no table"):
        registry.commit_batch(Batch(**(sound | flaw)))


def test_progress_stays_when_a_run_is_over_and_is_deleted_with_it(registry, run, commit) -> None:
    commit(0, 0, 1, users(run), partials=(Partial(run, "p/1"),))
    registry.force_end(run, "enough")
    assert registry.partials(run) == [Partial(run, "p/1")]
    registry.delete_chunks(run)
    assert registry.progress(run) == {"users": {0: Volume(1, 10)}}
    assert registry.partials(run) == []
    assert registry.delete_run(run)
    with pytest.raises(RunNotFound):
        registry.progress(run)
    assert registry.positions([0]) == {0: 1}


def test_partials_are_forgotten_with_their_run(registry, run, commit) -> None:
    commit(0, 0, 1, users(run), partials=(Partial(run, "p/1"),))
    registry.force_end(run, "enough")
    registry.delete_run(run)
    assert registry.partial_paths("") == set()


def figures_of(registry, run: str) -> RunFigures:
    return RunFigures(registry.get_run(run), registry.table_states(run), registry.version(run))


def test_an_account_has_all_figures_of_a_run(registry, open_run, put, commit) -> None:
    run = open_run()
    put(run, 0)
    fresh = registry.run_account(run)
    assert fresh.figures == figures_of(registry, run)
    assert (fresh.expected, fresh.processed, fresh.published) == ({}, {}, None)
    for table, state in fresh.figures.tables.items():
        registry.end_table(run, table, state.chunks, state.rows)
    commit(0, 0, 1, users(run))
    registry.open_barrier(run)
    registry.publish_results(run, "a1", {"n": 1})
    account = registry.run_account(run)
    assert account.figures == figures_of(registry, run)
    assert account.expected == registry.expectations(run)
    assert account.processed == {"users": {0: Volume(1, 10)}}
    assert account.published == registry.results(run)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.integers(0, 1), st.integers(0, 2)),
        st.tuples(st.just("again"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("astray"), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.just("end"), st.integers(0, 1), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_stream_agrees_with_a_simple_model(registry, open_run, put, steps) -> None:
    """Two runs take turns in the log; one chunk, one partial."""
    runs = [open_run(), open_run()]
    begin = registry.last_sequence(0)
    for number in range(6):
        put(runs[number % 2], number)
    query, committed, over = f"q-{runs[0]}", [], set()
    # Entries of earlier examples are skipped, as if their runs had been deleted.
    registry.commit_batch(Batch("before", begin, {0: (registry.positions([0])[0], begin)}))
    position, counts, kept = begin, dict.fromkeys(runs, 0), []

    def batch(number: int, after: int, upto: int) -> Batch:
        entries = registry.read_span(0, after, upto)
        processed = tuple(users(entry.run) for entry in entries)
        partials = tuple(Partial(entry.run, f"{query}/{entry.sequence}") for entry in entries)
        return Batch(query, number, {0: (after, upto)}, processed, partials)

    for step, first, second in steps:
        if step == "end":
            registry.force_end(runs[first], "enough")
            over.add(runs[first])
        elif step == "next":
            made = batch(len(committed), position, min(position + first + second, begin + 6))
            assert registry.commit_batch(made) == Committed("committed", made.runs & over)
            committed.append(made)
            position = made.spans[0][1]
            for each in (each for each in made.processed if each.run not in over):
                counts[each.run] += 1
            kept += [partial for partial in made.partials if partial.run not in over]
        elif step == "again" and committed:
            assert registry.commit_batch(committed[first % len(committed)]).outcome == "repeated"
        elif step == "astray" and begin + first != position:
            with pytest.raises(ForeignCheckpoint):
                registry.commit_batch(batch(len(committed), begin + first, begin + first + second))
    assert registry.positions([0]) == {0: position}
    for run in runs:
        volume = Volume(counts[run], 10 * counts[run])
        assert registry.progress(run).get("users", {}).get(0, Volume()) == volume
        assert registry.partials(run) == sorted(
            (partial for partial in kept if partial.run == run), key=lambda partial: partial.path
        )
