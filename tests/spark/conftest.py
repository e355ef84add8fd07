"""One Spark session for all tests here, tables written by hand, and results as multisets."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.money import to_units
from kopitiam.contracts.tables import TABLES, Kind
from kopitiam.landing.writer import encode
from kopitiam.pipeline.session import SparkOptions, spark_session
from kopitiam.pipeline.tables import spark_schema

Rows = Sequence[tuple[Any, ...]]
Multiset = Counter[tuple[Any, ...]]
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.maxMetadataStringLength": "10000",  # plans show their filters and columns in full
    # Otherwise the optimizer would answer by itself what is asked of hand-made rows.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
_CELLS: dict[Kind, Callable[[str], Any]] = {
    Kind.MONEY: to_units,
    Kind.INSTANT: lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
    Kind.DATE: date.fromisoformat,
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    options = SparkOptions(master="local[2]", conf=_CONF)
    with spark_session(options, tmp_path_factory.mktemp("spark")) as coming:
        yield coming.result()


def in_normal_form(table: str, rows: Rows) -> pa.Table:
    """Rows with their columns in declared order; amounts, times and dates as they are spelled in a CSV."""
    columns = TABLES[table].columns
    cells = [
        {
            column.name: _CELLS[column.kind](cell) if cell is not None and column.kind in _CELLS else cell
            for column, cell in zip(columns, row, strict=True)
        }
        for row in rows
    ]
    return pa.Table.from_pylist(cells, schema=TABLES[table].schema)


@pytest.fixture(scope="session")
def normal_form() -> Callable[[str, Rows], pa.Table]:
    return in_normal_form


@pytest.fixture(scope="session")
def table(spark: SparkSession) -> Callable[[str, Rows], DataFrame]:
    """`table("stores", [(1, "North")])` is a DataFrame with the declared schema."""

    def make(name: str, rows: Rows) -> DataFrame:
        return spark.createDataFrame(in_normal_form(name, rows), spark_schema(TABLES[name]))

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


class Landing:
    """The chunk files of each table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: dict[str, list[Path]] = {name: [] for name in TABLES}

    def add(self, name: str, number: int, rows: pa.Table) -> None:
        file = self._path / f"table={name}" / f"chunk-{number:05d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(TABLES[name], rows))
        self.files[name].append(file)


@pytest.fixture(scope="session")
def land() -> Callable[[Path, dict[str, Rows]], dict[str, list[Path]]]:
    """Puts hand-written tables at rest, one row a chunk; gives the files of each table."""

    def write(path: Path, tables: dict[str, Rows]) -> dict[str, list[Path]]:
        landing = Landing(path)
        for name, rows in tables.items():
            for number, row in enumerate(rows):
                landing.add(name, number, in_normal_form(name, [row]))
        return landing.files

    return write


@pytest.fixture(scope="session")
def tiny_landed(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The tiny generated folder at rest, in chunks small enough that each large table has several."""
    landing = Landing(tmp_path_factory.mktemp("landing"))
    folder = open_folder(tiny_folder)
    with ThreadPoolExecutor(1) as workers:
        for name in TABLES:
            for chunk in read_chunks(folder, name, workers, _refuse, chunk_rows=3000):
                landing.add(name, chunk.number, chunk.rows)
    return landing.files


def _refuse(row: object) -> None:
    raise AssertionError(f"generated data has a bad row: {row}")
