"""What data sets keep, and what is removed: never a file that a version or a run needs, and all others."""

import itertools

import pytest
from data_world import NAMES, DataWorld, month, source_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopitiam.contracts.errors import DataSetNotFound
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Registry
from kopitiam.registry.keeping import Garbage
from sampling import IS_FULL

JANUARY, FEBRUARY = month(1), month(2)
LONG = 100.0


@pytest.fixture
def world(registry: Registry) -> DataWorld:
    return DataWorld(registry)


def collect(world: DataWorld, clock, versions: int = 12, plans: int = 32) -> Garbage:
    """Collect after everything has settled, as the janitor does."""
    clock.advance(LONG)
    garbage = world.registry.collect(versions, plans, clock() - LONG / 2)
    world.registry.forget(garbage)
    return garbage


def files_of(world: DataWorld, version: int) -> set[str]:
    data_set = world.registry.data_set("anna", "sales")
    return {file.file for file in world.registry.version_files(data_set.id, version)}


def test_a_file_goes_when_no_version_has_it(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    world.answered(month(1, "other"))
    replaced = files_of(world, 1) - files_of(world, 2)
    assert collect(world, clock, versions=2) == Garbage()
    assert set(collect(world, clock, versions=1).files) == replaced
    assert not any(map(world.registry.is_known, replaced))
    assert all(map(world.registry.is_known, files_of(world, 2)))
    assert [version.number for version in world.registry.data_set("anna", "sales").versions] == [2]
    with pytest.raises(DataSetNotFound, match="version 1"):
        world.ask(version=1)
    assert collect(world, clock) == Garbage()


def test_a_run_keeps_its_files_until_it_is_over(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    asking = world.ask(version=1, min_amount="1")
    world.answered(month(1, "other"))
    replaced = files_of(world, 1) - files_of(world, 2)
    assert collect(world, clock, versions=1).files == ()
    world.finish(asking)
    assert world.registry.collect(1, 32, clock()).files == ()  # it is over, but not settled
    assert set(collect(world, clock, versions=1).files) == replaced


def test_what_is_marked_is_used_by_nobody_and_marked_until_it_is_forgotten(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    world.answered(month(1, "other"))
    clock.advance(LONG)
    marked = world.registry.collect(1, 32, clock())
    assert len(marked.files) == 2
    run = world.open()
    named = world.send(run, JANUARY)  # the same bytes again
    assert {file.file for file in named}.isdisjoint(marked.files)
    assert world.registry.collect(1, 32, clock()) == marked
    world.registry.forget(marked)
    world.registry.forget(marked)
    assert collect(world, clock) == Garbage()
    world.registry.seal_run(run)
    assert world.files() == NAMES | JANUARY


def test_files_of_an_upload_that_ended_go(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    run = world.open()
    sent = world.send(run, FEBRUARY | {("users", "users.csv"): "n"})
    world.registry.name_files(run, [source_file(("users", "unsent.csv"), "u")])
    assert collect(world, clock) == Garbage()
    world.registry.force_end(run, "cancelled")
    gone = set(collect(world, clock).files)
    assert gone >= {file.file for file in sent[:2]} and len(gone) == 3
    assert world.files() == NAMES | JANUARY


def test_a_data_set_without_a_version_goes_with_its_only_run(world: DataWorld, clock) -> None:
    run = world.open("unfinished")
    collect(world, clock)
    assert world.registry.data_set("anna", "unfinished").newest == 0
    world.registry.force_end(run, "cancelled")
    collect(world, clock)
    with pytest.raises(DataSetNotFound):
        world.registry.data_set("anna", "unfinished")


def test_of_many_plans_the_last_used_ones_are_kept(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    for amount in ("1", "2", "3"):
        clock.advance(1)
        world.finish(world.ask(min_amount=amount))
    clock.advance(1)
    world.registry.force_end(world.ask(min_amount="75"), "only to use them")
    clock.advance(LONG)
    marked = world.registry.collect(12, 4, clock())
    assert len(marked.plans) == 2 and len(marked.partials) == 2  # listed rows of the amounts 1 and 2
    assert marked.files == ()
    assert world.registry.partial_paths("") >= set(marked.partials)
    world.registry.forget(marked)
    assert world.registry.partial_paths("").isdisjoint(marked.partials)
    assert world.logged(world.ask(min_amount="75")) == world.logged(world.ask(min_amount="3")) == set()
    assert world.logged(world.ask(min_amount="2")) != set()


def test_partials_that_a_run_uses_stay_until_it_is_over(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    using = world.ask()
    assert collect(world, clock, plans=1).plans == ()
    world.finish(using)
    assert len(collect(world, clock, plans=1).plans) == 2


def test_discarded_partials_are_computed_again(world: DataWorld, clock) -> None:
    world.answered(NAMES | JANUARY)
    using = world.ask()
    path = next(partial.path for partial in world.registry.partials(using) if partial.kind == "3")
    world.registry.discard_partials([path])
    assert path in {partial.path for partial in world.registry.partials(using)}  # it will notice
    assert {table for table, _ in world.logged(world.ask())} == {"transactions"}
    assert collect(world, clock).partials == (path,)


def test_a_dropped_data_set_leaves_its_name_and_then_nothing(world: DataWorld, clock) -> None:
    run = world.answered(NAMES | JANUARY)
    open_run = world.open()
    files = {file.file for file in [*world.send(open_run, FEBRUARY)]} | files_of(world, 1)
    assert set(world.registry.drop_data_set("anna", "sales")) == {run, open_run}
    with pytest.raises(DataSetNotFound):
        world.registry.drop_data_set("anna", "sales")
    with pytest.raises(DataSetNotFound, match="dropped"):
        world.registry.seal_run(open_run)
    again = world.submit(NAMES | FEBRUARY)  # a new one of the same name
    for each in (run, open_run):
        world.registry.purge_run(each, "dropped")
    assert set(collect(world, clock).files) == files
    collect(world, clock)
    assert [data_set.newest for data_set in world.registry.data_sets(None)] == [1]
    assert world.is_complete(again) is False


def test_a_purged_run_is_hidden_and_ended(world: DataWorld, registry: Registry, clock) -> None:
    done, working = world.answered(NAMES | JANUARY), world.ask(min_amount="1")
    assert (registry.purge_run(done, "deleted"), registry.purge_run(working, "deleted")) == (False, True)
    assert [registry.get_run(run).state for run in (done, working)] == [RunState.DONE, RunState.ENDED]
    assert all(registry.get_run(run).is_purged for run in (done, working))
    assert (registry.list_runs(None, 10), registry.count_listed(None)) == ([], 0)
    assert registry.purged_before(clock()) == []
    clock.advance(1)
    assert {run.run for run in registry.purged_before(clock())} == {done, working}


numbers = st.integers(1, 4)
contents = st.sampled_from(["a", "bb", "ccc"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), numbers, contents),
        st.tuples(st.just("leave open"), numbers, contents),
        st.tuples(st.just("ask"), st.integers(0, 3), st.sampled_from(["75", "80"])),
        st.tuples(st.just("finish"), st.integers(0, 9), st.none()),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
        st.tuples(st.just("collect"), st.integers(1, 4), st.none()),
    ),
    max_size=14,
)


@settings(
    max_examples=60 if IS_FULL else 8,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(steps=steps)
def test_whatever_comes_every_version_and_every_run_finds_its_files(registry, clock, steps) -> None:
    """The model is a list of the contents of all versions, and the first one that is kept."""
    world, working = DataWorld(registry), []
    world._batches = itertools.count(registry.identity().mark * 1000)
    registry.advance_mark()
    world.answered(NAMES | JANUARY)
    versions, kept = [dict(NAMES | JANUARY)], 1
    for step, number, more in steps:
        match step:
            case "submit":
                working.append(world.submit(month(number, more)))
                if versions[-1] != versions[-1] | month(number, more):
                    versions.append(versions[-1] | month(number, more))
            case "leave open":
                working.append(world.open())
                world.send(working[-1], month(number, more))
            case "ask":
                working.append(world.ask(version=max(len(versions) - number, kept), min_amount=more))
            case "finish" | "end" if working:
                end(world, working.pop(number % len(working)), is_forced=step == "end")
            case "collect":
                collect(world, clock, versions=number, plans=2)
                kept = max(kept, len(versions) - number + 1)
        for place in range(kept, len(versions) + 1):
            assert world.files(place) == versions[place - 1]
    world.process()
    for run in working:
        assert all(registry.is_known(file.file) for file in registry.run_files(run))
        end(world, run)
    collect(world, clock, versions=len(versions) - kept + 1)
    needed = {file for place in range(kept, len(versions) + 1) for file in files_of(world, place)}
    assert {path.split("run=")[1][:24] for path in registry.partial_paths("")} <= needed
    for run in registry.drop_data_set("anna", "sales"):
        registry.purge_run(run, "dropped")
        registry.delete_run(run)
    assert set(collect(world, clock).files) == needed
    assert registry.partial_paths("") == set()
    collect(world, clock)
    assert registry.data_sets(None) == []


def end(world: DataWorld, run: str, is_forced: bool = False) -> None:
    """Finish a run that is sealed, unless it is ended by force; an open one is always ended."""
    if is_forced or world.registry.get_run(run).state is RunState.OPEN:
        world.registry.force_end(run, "cancelled")
        world.registry.delete_chunks(run)
    else:
        world.finish(run)
