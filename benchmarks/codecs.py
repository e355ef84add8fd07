"""Codecs of chunks, measured: bytes, and CPU time to encode, to examine and to read with Spark.

    kopi generate --out data --scale 0.04
    python -m benchmarks.codecs data

Two kinds of data: `tame` as generated (few distinct amounts), `wild` with the numbers replaced by random
ones, so that nearly every amount is distinct. docs/decisions/0013-parquet-codecs.md has the figures.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from kopitiam.pipeline.questions import partials_of_items, partials_of_transactions
from pyspark.sql import DataFrame, SparkSession

from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.api import PARQUET
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Column, Kind, Table
from kopitiam.gateway.examination import Order, examine
from kopitiam.pipeline.session import SparkOptions, spark_session
from kopitiam.pipeline.tables import read_table
from kopitiam.questions.question_set import QuestionSet

TABLES = QuestionSet.of_catalog().tables

MEASURED = ("transactions", "transaction_items")
WARMING_ROUNDS = 4  # until the code is compiled


@dataclass(frozen=True)
class Candidate:
    """How a chunk is written: the codec of text and of numbers, and which columns have a dictionary."""

    numbers: str
    text: str = "none"
    has_dictionaries: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def encode(self, table: Table, rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(
            rows.combine_chunks(),
            sink,
            row_group_size=max(rows.num_rows, 1),
            compression={column.name: self._codec(column) for column in table.columns},
            compression_level={c.name: 1 for c in table.columns if self._codec(c) == "zstd"} or None,
            use_dictionary=[c.name for c in table.columns if c.repeats] if self.has_dictionaries else False,
            store_schema=False,
            write_page_checksum=True,
            **self.options,
        )
        return bytes(sink.getvalue())

    def _codec(self, column: Column) -> str:
        return self.text if column.kind is Kind.TEXT else self.numbers


CANDIDATES = {
    "lz4": Candidate("lz4"),
    "lz4, dictionaries to 8 KiB": Candidate("lz4", options={"dictionary_pagesize_limit": 8192}),
    "none": Candidate("none"),
    "snappy": Candidate("snappy"),
    "snappy, dictionaries to 64 KiB": Candidate("snappy", options={"dictionary_pagesize_limit": 65536}),
    "snappy, text too": Candidate("snappy", "snappy"),
    "zstd": Candidate("zstd"),
    "zstd, dictionaries to 64 KiB": Candidate("zstd", options={"dictionary_pagesize_limit": 65536}),
    "zstd, no dictionaries": Candidate("zstd", has_dictionaries=False),
    "zstd, text too": Candidate("zstd", "zstd"),
    "zstd, text too, dictionaries to 64 KiB": Candidate(
        "zstd", "zstd", options={"dictionary_pagesize_limit": 65536}
    ),
}


def tame(folder: Path) -> dict[str, list[pa.Table]]:
    files = open_folder(folder, TABLES)
    with ThreadPoolExecutor(2) as workers:
        return {
            name: [chunk.rows for chunk in read_chunks(files, TABLES[name], workers, lambda _: None)]
            for name in MEASURED
        }


def wild(chunks: dict[str, list[pa.Table]]) -> dict[str, list[pa.Table]]:
    draw = np.random.default_rng(7)
    ends = {Kind.MONEY: 10**9, Kind.COUNT: 1_000, Kind.ID: 5_000}

    def random_numbers(rows: pa.Table) -> pa.Table:
        for index, name in enumerate(rows.column_names):
            column = next(c for table in TABLES.values() for c in table.columns if c.name == name)
            if column.kind in ends and not column.is_optional:
                numbers = pa.array(draw.integers(0, ends[column.kind], rows.num_rows))
                rows = rows.set_column(index, rows.schema.field(index), numbers)
        return rows

    return {name: [random_numbers(rows) for rows in tables] for name, tables in chunks.items()}


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """The least of some rounds."""

    def once() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return min(once() for _ in range(rounds))


def jvm_seconds(spark: SparkSession, work: Callable[[], object], rounds: int) -> float:
    assert spark.sparkContext._gateway is not None
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)

    def total() -> float:
        family = [jvm, *jvm.children(recursive=True)]
        return sum(times.user + times.system for times in (each.cpu_times() for each in family))

    def once() -> float:
        begun = total()
        work()
        return total() - begun

    return min(once() for _ in range(rounds))


def read(spark: SparkSession, landing: Path) -> None:
    """The partials of all chunks, as a batch computes them, written nowhere."""
    frames: list[DataFrame] = []
    for name, partials_of in zip(MEASURED, (partials_of_transactions, partials_of_items), strict=True):
        files = sorted(map(str, landing.glob(f"table={name}/**/*.parquet")))
        for part in range(2):
            table = read_table(spark, str(landing), name, files[part::2]).drop("run").coalesce(1)
            frames += partials_of(table, Parameters()).values()
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    whole.write.format("noop").mode("overwrite").save()


def land(candidate: Candidate, chunks: dict[str, list[pa.Table]], landing: Path) -> Iterator[Path]:
    for name, tables in chunks.items():
        folder = landing / f"table={name}" / "shard=0" / "run=r"
        folder.mkdir(parents=True)
        for number, rows in enumerate(tables):
            file = folder / f"{number:05}.parquet"
            file.write_bytes(candidate.encode(TABLES[name], rows))
            yield file


def check(file: Path) -> None:
    name = next(part for part in file.parts if part.startswith("table=")).removeprefix("table=")
    finding = examine(
        Order(str(file), PARQUET, name, list(TABLES[name].schema.names), "", "", 64 << 20, 1 << 20)
    )
    assert finding.refusal is None, finding


@dataclass(frozen=True)
class Landed:
    landing: Path
    megabytes: float
    encode_seconds: float
    examine_seconds: float


def measure_without_spark(
    candidate: Candidate, chunks: dict[str, list[pa.Table]], landing: Path, rounds: int
) -> Landed:
    def encode() -> None:
        for name, tables in chunks.items():
            for rows in tables:
                candidate.encode(TABLES[name], rows)

    def examine_all() -> None:
        for file in files:
            check(file)

    files = list(land(candidate, chunks, landing))
    size = sum(file.stat().st_size for file in files) / 1e6
    return Landed(landing, size, cpu_seconds(encode, rounds), cpu_seconds(examine_all, rounds))


def measure_reads(spark: SparkSession, landings: list[Path], rounds: int) -> list[float]:
    for _ in range(WARMING_ROUNDS):
        for landing in landings:
            read(spark, landing)
    return [jvm_seconds(spark, partial(read, spark, landing), rounds) for landing in landings]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="candidates whose names contain this")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    known = tame(arguments.data)
    candidates = {name: candidate for name, candidate in CANDIDATES.items() if arguments.only in name}
    rows = sum(table.num_rows for tables in known.values() for table in tables)
    print(f"{rows:,} rows, {os.cpu_count()} cores")
    print("| data | candidate | MB | encode s | examine s | Spark reads s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="kopitiam-codecs-") as folder:
        scratch = Path(folder)
        with spark_session(SparkOptions(master="local[2]"), scratch) as coming:
            for kind, chunks in {"tame": known, "wild": wild(known)}.items():
                landed = [
                    measure_without_spark(candidate, chunks, scratch / f"{kind}-{number}", arguments.rounds)
                    for number, candidate in enumerate(candidates.values())
                ]
                reads = measure_reads(coming.result(), [each.landing for each in landed], arguments.rounds)
                for name, each, seconds in zip(candidates, landed, reads, strict=True):
                    figures = (each.encode_seconds, each.examine_seconds, seconds)
                    told = " | ".join(f"{figure:.2f}" for figure in figures)
                    print(f"| {kind} | {name} | {each.megabytes:.1f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
