"""Answers from partials: merged, ranked, joined with the names. The four questions are asked at once, since
each of them is a few small jobs that wait more than they work.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.questions import Questions
from kopitiam.landing.layout import KEYS
from kopitiam.pipeline import partials
from kopitiam.pipeline import questions as asked
from kopitiam.pipeline.failures import SPARK_FAILED, failure_of, jobs_of
from kopitiam.pipeline.parallelism import tasks_at_once
from kopitiam.pipeline.stopwatch import Stopwatch
from kopitiam.pipeline.tables import read_table
from kopitiam.results.answers import RawAnswers
from kopitiam.storage.port import Key, StoragePort

T = TypeVar("T")
Stage = Callable[[DataFrame], DataFrame]
SCHEDULER_POOL = "answers"
_MOST_IDS_IN_FILTER = 1_000


@dataclass(frozen=True)
class Material:
    """What the answers of a run are made of: the files of its partials, counted, and those of its tables."""

    run: str
    questions: Questions
    partials: Sequence[Key]
    files: Mapping[str, Sequence[Key]]
    storage: StoragePort
    sorting: Key  # where Spark may leave the sorted files of Q1 for a while


def answer(spark: SparkSession, material: Material, scratch: Path, watch: Stopwatch) -> RawAnswers:
    """`scratch` takes the sorted files of Q1, where they are read from."""
    storage = material.storage

    def partial(kind: str) -> DataFrame:
        files = [file for file in material.partials if partials.kind_of(str(file.parent)) == kind]
        return partials.read(spark, storage.url(KEYS.partials), kind, [storage.url(file) for file in files])

    def table(name: str) -> DataFrame:
        files = [storage.url(key) for key in material.files[name]]
        return read_table(spark, storage.url(KEYS.landing), name, files)

    def products() -> pa.Table:
        return asked.products_by_month(partial(partials.PRODUCTS), table("menu_items")).toArrow()

    def tpv() -> pa.Table:
        return asked.tpv_by_half_and_store(partial(partials.TPV), table("stores")).toArrow()

    def customers() -> pa.Table:
        """Ranks first, so that the few wanted ids reach down into the users' Parquet files."""
        slices = tasks_at_once(spark)
        ranked = asked.customers_by_store(partial(partials.PURCHASES), material.questions, slices).toArrow()
        users = table("users").transform(users_with(spark, ranked["user_id"].unique()))
        return asked.birthdates_by_store(spark.createDataFrame(ranked), table("stores"), users).toArrow()

    def large_sales() -> tuple[Path, ...]:
        space = storage.workspace(scratch)
        asked.large_sales(partial(partials.LARGE_SALES)).write.parquet(space.url(material.sorting))
        return space.fetch(f"{material.sorting}/part-*.parquet", scratch)

    with ThreadPoolExecutor(4, thread_name_prefix="answers") as threads:
        coming = [
            threads.submit(_as_jobs_of, spark, material.run, question, watch)
            for question in (customers, large_sales, products, tpv)
        ]
        try:
            ranked_customers, sales, best_products, values = [each.result() for each in coming]
        except SPARK_FAILED as error:
            raise failure_of(error) from error
    return RawAnswers(sales, best_products, values, ranked_customers)


def users_with(spark: SparkSession, ids: pa.Array) -> Stage:
    """The users with these ids: a filter for a few of them, a join for any number.

    Each id of a filter costs two calls to the JVM and a literal in the plan.
    """

    def known_users(users: DataFrame) -> DataFrame:
        if len(ids) <= _MOST_IDS_IN_FILTER:
            return users.where(f.col("user_id").isin(ids.to_pylist()))
        bounds = pc.min_max(ids).as_py()
        in_range = users.where(f.col("user_id").between(bounds["min"], bounds["max"]))
        wanted = spark.createDataFrame(pa.table({"user_id": ids}))
        return in_range.join(f.broadcast(wanted), on="user_id", how="leftsemi")

    return known_users


def _as_jobs_of(spark: SparkSession, run: str, question: Callable[[], T], watch: Stopwatch) -> T:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", SCHEDULER_POOL)
    with jobs_of(spark, [run]), watch.lap(question.__name__):
        return question()
