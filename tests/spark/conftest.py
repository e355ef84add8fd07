"""One Spark session for all tests here, tables written by hand, results as multisets, and pipelines."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunked_sales import Rows, in_normal_form
from pipelines import Pipeline
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog_tables import TABLES
from kopitiam.pipeline.tables import spark_schema
from kopitiam.spark.session import spark_session
from kopitiam.spark.settings import SparkOptions

Multiset = Counter[tuple[Any, ...]]
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.maxMetadataStringLength": "10000",  # plans show their filters and columns in full
    # Otherwise the optimizer evaluates queries of hand-made rows itself, without executing a plan.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    options = SparkOptions(master="local[2]", conf=_CONF, is_brief=True)
    with spark_session(options, tmp_path_factory.mktemp("spark")) as coming:
        yield coming.result()


@pytest.fixture(scope="session")
def table(spark: SparkSession) -> Callable[..., DataFrame]:
    """`table("stores", [(1, "North")])` is a DataFrame as it is read from the landing of a run."""

    def make(name: str, rows: Rows, run: str = "run-1") -> DataFrame:
        at_rest = in_normal_form(name, rows)
        for folder, value, kind in (
            ("table", name, pa.string()),
            ("shard", 0, pa.int32()),
            ("run", run, pa.string()),
        ):
            at_rest = at_rest.append_column(folder, pa.array([value] * len(rows), kind))
        return spark.createDataFrame(at_rest, spark_schema(TABLES[name]))

    return make


@pytest.fixture(scope="session")
def collected() -> Callable[[dict[str, DataFrame]], dict[str, Multiset]]:
    """The rows of several frames, whatever their columns, as multisets, in a single Spark action."""

    def collect(frames: dict[str, DataFrame]) -> dict[str, Multiset]:
        as_text = [
            frame.select(
                f.lit(name).alias("frame"),
                f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("row"),
            )
            for name, frame in frames.items()
        ]
        rows: dict[str, Multiset] = {name: Counter() for name in frames}
        for name, row in reduce(DataFrame.union, as_text).collect():
            rows[name][tuple(json.loads(row).values())] += 1
        return rows

    return collect


@pytest.fixture
def make_pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """A pipeline in `tmp_path` or another folder; a second one in the same folder takes over from the
    first."""
    pipelines: list[Pipeline] = []

    def make(path: Path = tmp_path / "home", **options: Any) -> Pipeline:
        path.mkdir(exist_ok=True)
        pipelines.append(Pipeline(spark, path, **options))
        return pipelines[-1]

    yield make
    for pipeline in pipelines:
        pipeline.registry.close()
