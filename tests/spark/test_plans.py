"""What Spark executes for a batch and for a final step, read from its own list of executions."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chunked_sales import cut, plain, sales
from pipelines import Pipeline
from plans import CATALOG
from pyspark import SparkContext
from pyspark.sql import SparkSession

from catalog_tables import TABLES
from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.partials import PartialLayout
from oracle import plain_answers

ONE_YEAR = Parameters(2024, 2024)
OF_THE_YEARS = {"IsNotNull(created_at)", "GreaterThanOrEqual(created_at)", "LessThan(created_at)"}

OF_AN_ID = {"transaction_id", "transaction_id_high", "transaction_id_low"}  # text, or two numbers of a UUID


@dataclass(frozen=True)
class Query:
    plan: str
    jobs: int
    tasks: tuple[int, ...] = ()  # of each stage that ran

    @property
    def scans(self) -> list[str]:
        return re.findall(r"^\(\d+\) Scan parquet.*?(?=\n\n)", self.plan, re.MULTILINE | re.DOTALL)

    @property
    def nodes(self) -> list[str]:
        """The numbers of the nodes of the plan that Spark began with, before the first stage ended."""
        tree = self.plan.partition("\n\n")[0].rpartition("== Initial Plan ==")[2]
        return re.findall(r"\((\d+)\)$", tree, re.MULTILINE)

    @property
    def planned_scans(self) -> list[str]:
        return [scan for scan in self.scans if scan[1 : scan.index(")")] in self.nodes]

    @property
    def is_write(self) -> bool:
        return "Execute InsertIntoHadoopFsRelationCommand" in self.plan


@dataclass(frozen=True)
class Executed:
    batch: list[Query]
    final: list[Query]


@pytest.fixture(scope="module")
def executed(spark, tiny_folder, tmp_path_factory) -> Iterator[Executed]:
    """A batch with all chunks of two runs with different questions, and the final step of the larger one."""
    pipeline = Pipeline(spark, tmp_path_factory.mktemp("plans"))
    with closing(pipeline.registry), pytest.MonkeyPatch.context() as patches:
        patches.setattr("kopitiam.pipeline.tables.BROADCAST_ROWS", 20)  # as if there were millions of users
        run = pipeline.open()
        put_folder(pipeline, run, tiny_folder)
        pipeline.upload(cut(sales(seed=1), rows_a_chunk=100), ONE_YEAR)
        plans = Executed(
            queries_of(spark, pipeline.stream_all), queries_of(spark, lambda: pipeline.finish(run))
        )
        assert len(pipeline.committed) == 1
        assert pipeline.answers(run) == plain_answers(tiny_folder, Parameters())
        yield plans


def put_folder(pipeline: Pipeline, run: str, folder: Path) -> None:
    with ThreadPoolExecutor(1) as workers:
        for name, table in TABLES.items():
            for chunk in read_chunks(open_folder(folder, TABLES), table, workers, refuse, chunk_rows=8000):
                pipeline.put_table(run, name, chunk.number, chunk.rows)
    pipeline.seal(run)


def refuse(row: object) -> None:
    raise AssertionError(f"generated data has a bad row: {row}")


def queries_of(spark: SparkSession, work: Callable[[], None]) -> list[Query]:
    def known() -> dict[int, Query]:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        queries = spark._jsparkSession.sharedState().statusStore().executionsList()
        return {
            query.executionId(): Query(
                query.physicalPlanDescription(), query.jobs().size(), tasks_of(spark, query)
            )
            for query in map(queries.apply, range(queries.size()))
        }

    before = known()
    work()
    return [query for number, query in known().items() if number not in before]


def tasks_of(spark: SparkSession, query: Any) -> tuple[int, ...]:
    tracker, stages = spark.sparkContext.statusTracker(), query.stages().toSeq()
    infos = [tracker.getStageInfo(stages.apply(place)) for place in range(stages.size())]
    return tuple(info.numTasks for info in infos if info is not None and info.numCompletedTasks)


def scans_of(queries: list[Query]) -> dict[str, list[str]]:
    """Scans by the table or the kind of partial that they read."""
    scans_by_name: dict[str, list[str]] = {}
    for query in queries:
        for scan in query.scans:
            (name,) = set(re.findall(r"/(?:table|kind)=(\w+)", scan))
            scans_by_name.setdefault(name, []).append(scan)
    return scans_by_name


def pushed_filters(scan: str) -> str:
    match = re.search(r"^PushedFilters: \[(.*)\]$", scan, re.MULTILINE)
    return match[1] if match else ""


def conditions(scan: str) -> frozenset[str]:
    """Filters that are pushed down, without their values."""
    return frozenset(
        f"{condition}({column})" for condition, column in re.findall(r"(\w+)\((\w+)", pushed_filters(scan))
    )


def columns_read(scan: str) -> frozenset[str]:
    (fields,) = re.findall(r"^ReadSchema: struct<(.*)>$", scan, re.MULTILINE)
    return frozenset(re.findall(r"(\w+):\w+", fields))


@pytest.mark.long
def test_a_batch_is_one_job_that_writes_all_kinds_of_all_runs(executed):
    (write,) = (query for query in executed.batch if query.is_write)
    assert (write.jobs, "Exchange" in write.plan) == (1, False)  # and nothing is shuffled
    assert [query for query in executed.batch if query.scans and not query.is_write] == []
    assert set(scans_of(executed.batch)) == {"transactions", "transaction_items"}


@pytest.fixture
def with_cores(spark, monkeypatch) -> Iterator[Callable[[int], None]]:
    """Lets Spark plan for a number of cores, and takes every batch and every partial for large."""
    monkeypatch.setattr("kopitiam.pipeline.batch_frames.FEW_ROWS", 0)
    monkeypatch.setattr("kopitiam.pipeline.answering._MANY_ROWS", 0)

    def set_cores(cores: int) -> None:
        monkeypatch.setattr(SparkContext, "defaultParallelism", cores)
        spark.conf.set("spark.sql.leafNodeDefaultParallelism", cores)

    yield set_cores
    spark.conf.unset("spark.sql.leafNodeDefaultParallelism")


@pytest.mark.long
def test_plans_do_not_grow_with_the_cores_and_all_cores_get_tasks(spark, make_pipeline, tmp_path, with_cores):
    chunks = cut(sales(seed=1, count=128), rows_a_chunk=2)
    batches, finals = {}, {}
    for cores in (2, 64):
        with_cores(cores)
        pipeline = make_pipeline(tmp_path / str(cores), max_chunks=1_000)
        run = pipeline.upload(chunks)
        (batches[cores],) = (query for query in queries_of(spark, pipeline.process) if query.is_write)
        finals[cores] = queries_of(spark, lambda pipeline=pipeline, run=run: pipeline.finish(run))
        assert pipeline.answers(run) == plain(chunks)
    few, many = batches[2], batches[64]
    assert (len(many.nodes), many.jobs) == (len(few.nodes), few.jobs)
    assert many.tasks.count(64) == sum(not plan.lists_rows for plan in CATALOG.partials)
    assert sum(len(query.nodes) for query in finals[64]) <= sum(len(query.nodes) for query in finals[2])
    scans = [scan for query in finals[64] for scan in query.planned_scans]
    read = Counter(name for scan in scans for name in set(re.findall(r"/kind=(\w+)", scan)))
    assert read == {plan.name: len(plan.questions) for plan in CATALOG.partials}  # once for each question


def test_the_filter_of_years_is_pushed_down_to_the_parquet_files(executed):
    years = set()
    for scan in (scan for scans in scans_of(executed.batch).values() for scan in scans):
        since = re.search(r"GreaterThanOrEqual\(created_at,(\d{4})-01-01 00:00:00", pushed_filters(scan))
        until = re.search(r"LessThan\(created_at,(\d{4})-01-01 00:00:00", pushed_filters(scan))
        years.add((int(since[1]), int(until[1]) - 1))
    assert years == {(2024, 2025), (2024, 2024)}


def test_each_frame_of_a_batch_reads_only_the_columns_that_it_needs(executed):
    read = {name: set(map(columns_read, scans)) for name, scans in scans_of(executed.batch).items()}
    assert read == {
        "transactions": {
            frozenset({*OF_AN_ID, "final_amount", "created_at"}),
            frozenset({"store_id", "final_amount", "created_at"}),
            frozenset({"store_id", "user_id", "created_at"}),
            frozenset({"created_at"}),  # how many are of the years, which no partial counts
        },
        "transaction_items": {frozenset({"item_id", "quantity", "subtotal", "created_at"})},
    }


def test_each_filter_of_a_batch_is_pushed_down_as_far_as_possible(executed):
    """All filters but that of hours, which is no range of times."""
    scans = [scan for scans in scans_of(executed.batch).values() for scan in scans]
    pushed = {columns_read(scan): set[frozenset[str]]() for scan in scans}
    for scan in scans:
        pushed[columns_read(scan)].add(conditions(scan))
    of_an_amount = {"IsNotNull(final_amount)", "GreaterThanOrEqual(final_amount)"}
    assert pushed == {
        frozenset({*OF_AN_ID, "final_amount", "created_at"}): {frozenset(OF_THE_YEARS | of_an_amount)},
        frozenset({"store_id", "final_amount", "created_at"}): {frozenset(OF_THE_YEARS)},
        frozenset({"store_id", "user_id", "created_at"}): {frozenset(OF_THE_YEARS | {"IsNotNull(user_id)"})},
        frozenset({"created_at"}): {frozenset(OF_THE_YEARS)},
        frozenset({"item_id", "quantity", "subtotal", "created_at"}): {frozenset(OF_THE_YEARS)},
    }
    least = f"GreaterThanOrEqual(final_amount,{Parameters().min_units})"
    assert sum(least in pushed_filters(scan) for scan in scans) == sum(
        "transaction_id" in columns_read(scan) for scan in scans
    )


def test_the_final_step_reads_partials_and_names_and_no_sales(executed):
    read = {name: set(map(columns_read, scans)) for name, scans in scans_of(executed.final).items()}
    columns = {plan.name: set(PartialLayout(plan).schema.names) for plan in CATALOG.partials}
    partials = {name: read.pop(name) for name in columns}
    assert all(scan <= columns[name] for name, scans in partials.items() for scan in scans), partials
    assert read == {
        name: {frozenset(column.name for column in TABLES[name].columns)}
        for name in ("stores", "menu_items", "users")
    }


def test_only_ranked_customers_are_looked_up(executed):
    for scan in scans_of(executed.final)["users"]:
        assert re.search(r"\bIn\(user_id, \[\d+(,\d+)*\]\)|EqualTo\(user_id,", pushed_filters(scan))


def test_no_row_of_the_data_passes_through_python_and_no_csv_is_parsed_by_spark(executed):
    """Except the chunk log, the only source that is not Parquet."""
    for query in (*executed.batch, *executed.final):
        assert not re.search(r"python|pandas|mapinarrow|scan csv", query.plan, re.IGNORECASE)
    logs = [query for query in executed.batch if not query.is_write]
    assert any("MicroBatchScan" in query.plan for query in logs)
    assert all(re.search(r"Output \[9\]: \[lane#\d+, after#", query.plan) for query in logs)
