"""Data sets: versions that never change, files that are added, replaced and held, runs over them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from data_world import NAMES, SALES, DataWorld, month, source_file

from kopitiam.contracts.data_sets import Changes
from kopitiam.contracts.errors import (
    DataMissing,
    DataSetNotFound,
    FileConflict,
    FilesIncomplete,
    IdempotencyConflict,
    RunOver,
    TableSealed,
    TooManyDataSets,
    VersionConflict,
)
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import RunState
from kopitiam.registry import Registry

JANUARY, FEBRUARY = month(1), month(2)


@pytest.fixture
def world(registry: Registry) -> DataWorld:
    return DataWorld(registry)


def test_a_seal_makes_a_version_of_the_files_that_were_sent(world: DataWorld) -> None:
    run = world.submit(NAMES | JANUARY)
    sealed = world.registry.get_run(run)
    assert (sealed.state, sealed.data and sealed.data.version) == (RunState.SEALED, 1)
    assert world.files() == NAMES | JANUARY
    (version,) = world.registry.data_set("anna", "sales").versions
    assert (version.run, version.changes) == (run, Changes(added=5, rows_added=50))
    assert set(version.added) == {f"{table}/{name}" for table, name in NAMES | JANUARY}
    assert not world.is_complete(run)
    world.process()
    assert world.is_complete(run)


def test_files_are_added_and_replaced_and_the_rest_stays(world: DataWorld) -> None:
    world.submit(NAMES | JANUARY)
    world.submit(month(2, "longer"))
    run = world.submit(month(1, "other"))
    assert [world.files(number) for number in (1, 2, 3)] == [
        NAMES | JANUARY,
        NAMES | JANUARY | month(2, "longer"),
        NAMES | month(2, "longer") | month(1, "other"),
    ]
    use = world.registry.get_run(run).data
    assert use is not None
    assert use.changes == Changes(replaced=2, kept=5, rows_added=100, rows_removed=20)
    totals = {table: (state.chunks, state.rows) for table, state in world.registry.table_states(run).items()}
    assert totals == dict.fromkeys((table for table, _ in NAMES), (1, 10)) | dict.fromkeys(SALES, (11, 110))


def test_only_new_chunks_are_processed_once_the_others_were_answered(world: DataWorld) -> None:
    first = world.submit(NAMES | JANUARY)
    assert world.logged(first) == set(NAMES | JANUARY)
    world.finish(first)
    second = world.submit(FEBRUARY)
    assert world.logged(second) == set(FEBRUARY)
    assert world.reused(second) == set(JANUARY)
    assert world.registry.progress(second)["transactions"][0] == Volume(1, 10)
    world.process()
    assert world.is_complete(second)
    assert world.registry.expectations(second)["transactions"][0] == Volume(2, 20)
    flows = world.registry.run_account(second).flows
    assert flows["agg_tpv"][0].rows_in == 10  # of January; this pipeline counts no stages
    assert flows["check_users"][0].rows_out == 10


def test_the_same_questions_again_need_no_chunk_at_all(world: DataWorld) -> None:
    world.answered(NAMES | JANUARY)
    again = world.ask()
    assert world.registry.get_run(again).state is RunState.SEALED
    assert (world.logged(again), world.reused(again)) == (set(), set(JANUARY))
    assert world.is_complete(again)
    assert world.registry.open_barrier(again)


def test_names_of_questions_and_unused_parameters_do_not_matter_others_do(world: DataWorld) -> None:
    world.answered(NAMES | JANUARY)
    of_items = {("transaction_items", "transaction_items_202401.csv")}
    assert world.logged(world.ask(top=7)) == set()
    assert world.logged(world.ask(min_amount="80")) == set(JANUARY) - of_items
    assert world.logged(world.ask(years=[2023, 2025])) == set(JANUARY)
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "where": ["@year", "@hour"],
        "by": [["year_half_created_at", "year_half(created_at)"], ["store_id", "store_id"]],
        "measure": [["tpv", "sum(final_amount)"]],
        "columns": ["tpv"],
    }
    mine = world.ask(ask=["mine"], definitions=[definition])
    assert world.logged(mine) == set()
    assert [partial.kind for partial in world.registry.partials(mine)] == ["mine"]


def test_partials_are_computed_again_until_a_run_is_published(world: DataWorld) -> None:
    first, second = world.submit(NAMES | JANUARY), world.ask()
    world.process()
    assert world.logged(second) == set(JANUARY)
    for run in (first, second):
        assert world.is_complete(run)
        world.registry.open_barrier(run)
        world.registry.publish_results(run, run, {})
    kept = {partial.path for partial in world.registry.partials(world.ask())}
    assert len(world.registry.partials(first)) == 0
    assert kept.isdisjoint(partial.path for partial in world.registry.partials(second))
    assert len(kept) == len(world.registry.partials(second)) == 4


def test_a_file_that_was_sent_before_in_these_bytes_is_held(world: DataWorld) -> None:
    world.answered(NAMES | JANUARY)
    world.answered(month(1, "other"))
    run = world.open()
    (held, _) = world.registry.name_files(run, [source_file(*entry) for entry in JANUARY.items()])
    assert held.run != run and held.is_ended
    with pytest.raises(DataSetNotFound):
        world.put(run, held, 1)
    world.registry.seal_run(run)
    assert world.files(3) == world.files(1)
    assert world.logged(run) == set()


def test_a_file_is_held_only_with_the_columns_that_are_needed(world: DataWorld) -> None:
    few = ("transaction_id", "store_id", "user_id", "final_amount", "created_at")
    run = world.open()
    entry = (("transactions", "transactions_202401.csv"), "m")
    world.registry.name_files(run, [source_file(*entry, few)])
    world.send(run, {("transactions", "transactions_202401.csv"): "m"}, few)
    world.send(run, NAMES | {("transaction_items", "transaction_items_202401.csv"): "m"})
    world.registry.seal_run(run)
    later = world.open()
    assert world.registry.name_files(later, [source_file(*entry, few[1:])])[0].run == run
    another = world.open()
    assert world.registry.name_files(another, [source_file(*entry)])[0].run == another


def test_a_question_about_columns_that_were_not_kept_names_them(world: DataWorld) -> None:
    run = world.open(ask=["3"])
    world.send(run, {("stores", "stores.csv"): "n"})
    few = ("store_id", "final_amount", "created_at")
    world.send(run, {("transactions", f"transactions_{number}.csv"): "m" for number in range(5)}, few)
    world.registry.seal_run(run)
    with pytest.raises(DataMissing, match=r"no file of table menu_items"):
        world.ask(ask=["2_1"])
    message = (
        r"transactions\.transaction_id of transactions_0\.csv, .*2\.csv and 2 more; "
        r".*kopi submit DIR --data sales --columns all"
    )
    with pytest.raises(DataMissing, match=message):
        world.ask(ask=["1"])
    with pytest.raises(DataMissing, match=r"transactions\.transaction_id"):
        world.registry.seal_run(world.open(ask=["1"]))


def test_a_seal_on_top_of_another_version_than_the_newest_is_refused(world: DataWorld) -> None:
    one, other = world.open(), world.open()
    world.send(one, NAMES | JANUARY)
    world.send(other, NAMES | FEBRUARY)
    world.registry.seal_run(other)
    for _ in range(2):
        with pytest.raises(VersionConflict, match="version 1 of data set sales") as conflict:
            world.registry.seal_run(one)
        assert conflict.value.newest == 1
    assert world.registry.get_run(one).state is RunState.OPEN
    world.registry.seal_run(one, conflict.value.newest)
    assert world.files() == NAMES | JANUARY | FEBRUARY
    assert world.newest() == 2


def test_clients_that_seal_at_the_same_time_make_one_version_each(registry: Registry) -> None:
    world, months = DataWorld(registry), range(1, 9)
    world.submit(NAMES | month(12))
    ready = threading.Barrier(len(months))

    def send(number: int) -> int:
        run = world.open()
        world.send(run, month(number))
        ready.wait()
        conflicts, seen = 0, None
        while True:
            try:
                registry.seal_run(run, seen)
                return conflicts
            except VersionConflict as conflict:
                conflicts, seen = conflicts + 1, conflict.newest

    with ThreadPoolExecutor(len(months)) as threads:
        conflicts = list(threads.map(send, months))
    assert world.newest() == 1 + len(months)
    assert len(world.files()) == len(NAMES) + 2 * (1 + len(months))
    assert sorted(conflicts)[0] == 0 and sum(conflicts) >= len(months) - 1
    sizes = [len(world.files(number)) for number in range(1, 10)]
    assert sizes == [len(NAMES) + 2 * number for number in range(1, 10)]


def test_every_call_of_an_upload_may_be_repeated(world: DataWorld) -> None:
    run = world.open(key="k")
    assert world.open(key="k") == run
    with pytest.raises(IdempotencyConflict):
        world.open("another", key="k")
    named = [world.send(run, NAMES | JANUARY) for _ in range(2)]
    assert [file.file for file in named[0]] == [file.file for file in named[1]]
    file = named[0][-1]
    assert world.put(run, file, 0).outcome == "same"
    assert world.put(run, file, 0, "e").outcome == "conflict"
    assert world.registry.end_file(run, file.file, 2, 20).outcome == "conflict"
    sealed = [world.registry.seal_run(run) for _ in range(2)]
    assert sealed[0] == sealed[1]
    assert world.newest() == 1
    with pytest.raises(RunOver):
        world.registry.name_files(run, [source_file(("users", "more.csv"), "m")])


def test_a_file_cannot_change_while_it_is_sent(world: DataWorld) -> None:
    run = world.open()
    (file,) = world.registry.name_files(run, [source_file(("users", "users.csv"), "ab")])
    with pytest.raises(FileConflict, match=r"users/users.csv"):
        world.registry.name_files(run, [source_file(("users", "users.csv"), "cd")])
    world.put(run, file, 1)
    missing = world.registry.end_file(run, file.file, 2, 20)
    assert (missing.outcome, missing.missing) == ("missing", ((0, 0),))
    with pytest.raises(FilesIncomplete, match=r"users/users.csv"):
        world.registry.seal_run(run)
    world.put(run, file, 0)
    assert world.registry.end_file(run, file.file, 2, 21).outcome == "rows_differ"
    assert world.registry.end_file(run, file.file, 2, 20).sealed
    with pytest.raises(TableSealed):
        world.put(run, file, 2)


def test_a_run_that_changes_nothing_makes_no_version(world: DataWorld) -> None:
    world.submit(NAMES | JANUARY)
    run = world.submit(JANUARY)
    use = world.registry.get_run(run).data
    assert use is not None
    assert (use.version, use.changes) == (1, Changes(kept=5))
    assert world.newest() == 1


def test_an_older_version_can_be_asked(world: DataWorld) -> None:
    world.submit(NAMES | JANUARY)
    world.submit(FEBRUARY)
    run = world.ask(version=1)
    assert {file.key for file in world.registry.run_files(run)} == set(NAMES | JANUARY)
    for version in (3, 7):
        with pytest.raises(DataSetNotFound, match=f"version {version}"):
            world.ask(version=version)


def test_data_sets_belong_to_their_owner_and_are_limited(world: DataWorld, registry: Registry) -> None:
    world.submit(NAMES | JANUARY)
    other = DataWorld(registry, owner="bert")
    with pytest.raises(DataSetNotFound, match="no data set sales"):
        other.ask()
    other.submit(NAMES | FEBRUARY)
    assert other.files() == NAMES | FEBRUARY
    assert [data_set.owner for data_set in registry.data_sets(None)] == ["anna", "bert"]
    assert [data_set.owner for data_set in registry.data_sets("bert")] == ["bert"]
    with pytest.raises(TooManyDataSets):
        other.open("more", most=1)
    with pytest.raises(DataSetNotFound, match="no version yet"):
        other.ask(other.registry.get_run(other.open("empty")).data.name)  # type: ignore[union-attr]


def test_tables_that_no_question_needs_are_kept_and_not_processed(world: DataWorld) -> None:
    run = world.submit(NAMES | JANUARY | {("vouchers", "vouchers.csv"): "vv"})
    assert ("vouchers", "vouchers.csv") in world.files()
    assert ("vouchers", "vouchers.csv") not in world.logged(run)
    world.process()
    assert world.is_complete(run)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_run_with_other_shards_counts_the_same_files(registry: Registry, shards: int) -> None:
    before = DataWorld(registry, shards=3)
    before.answered(NAMES | month(1, "many chunks") | month(2, "abcdef"))
    world = DataWorld(registry, shards=shards)
    world._batches = before._batches
    for run in (world.ask(), world.ask(min_amount="1")):
        world.process()
        assert world.is_complete(run)
        expected = registry.expectations(run)["transactions"]
        assert set(expected) == set(range(shards))
        assert sum(volume.rows for volume in expected.values()) == 170
        assert set(registry.run_account(run).flows.get("filter_hour", {})) <= set(range(shards))
