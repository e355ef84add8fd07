"""Measures codecs of chunks, partials and sorted files: bytes, and CPU time to write and to read them.

    kopi generate --out data --scale 0.04
    python -m tools.benchmarks.codecs data

Chunks are encoded by Arrow, examined by a gateway, and read by Spark, which computes the partials of the
catalog. Partials are written and read by Spark. Sorted files are written by Spark and read by Arrow.

Two kinds of data: `tame` as generated (few distinct amounts), `wild` with the numbers replaced by random
ones, so that nearly every amount is distinct. docs/decisions/0013-parquet-codecs.md has the figures.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.api import PARQUET
from kopitiam.contracts.tables import CHUNK_ROWS, Column, Kind, Table
from kopitiam.gateway.examination import Order, examine
from kopitiam.landing.chunks import encode, in_stored_form
from kopitiam.pipeline import partials
from kopitiam.pipeline.compiler.partials import RUN, SHARD, partial_of
from kopitiam.pipeline.tables import read_table
from kopitiam.questions.plans import PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import ComputedAnswer
from kopitiam.spark.session import spark_session
from kopitiam.spark.settings import SparkOptions

CATALOG = QuestionSet.of_catalog()
TABLES = CATALOG.tables
LISTED = next(plan for plan in CATALOG.partials if plan.lists_rows)  # its rows are sorted

MEASURED = ("transactions", "transaction_items")
TASKS = 2
WARM_UPS = 2  # until the code is compiled
SPARK_CODEC = "spark.sql.parquet.compression.codec"
SPARK_CODECS = ("snappy", "zstd", "lz4_raw", "none")


@dataclass(frozen=True)
class Candidate:
    """How a chunk is written: the codec of text and of numbers, and the bytes of its largest dictionary."""

    numbers: str
    text: str = "none"
    dictionary_bytes: int = 1 << 20

    def encode(self, table: Table, rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        rows = in_stored_form(table, rows)
        columns = table.stored_as(set(rows.schema.names)).columns
        pq.write_table(
            rows.combine_chunks(),
            sink,
            row_group_size=max(rows.num_rows, 1),
            compression={column.name: self._codec(column) for column in columns},
            compression_level={c.name: 1 for c in columns if self._codec(c) == "zstd"} or None,
            use_dictionary=[c.name for c in columns if c.repeats],
            dictionary_pagesize_limit=self.dictionary_bytes,
            store_schema=False,
            write_page_checksum=True,
        )
        return bytes(sink.getvalue())

    def _codec(self, column: Column) -> str:
        return self.text if column.kind is Kind.TEXT else self.numbers


_SMALL = 64 << 10
Encoder = Callable[[Table, pa.Table], bytes]
CANDIDATES: dict[str, Encoder] = {
    "lz4, text plain": Candidate("lz4").encode,
    "none": Candidate("none").encode,
    "snappy, dictionaries to 64 KiB": Candidate("snappy", "snappy", _SMALL).encode,
    "zstd, text plain, dictionaries to 64 KiB": Candidate("zstd", dictionary_bytes=_SMALL).encode,
    "zstd, dictionaries to 1 MiB": Candidate("zstd", "zstd").encode,
    "zstd, dictionaries to 64 KiB": encode,  # as clients encode
}


def tame(folder: Path, chunk_rows: int = CHUNK_ROWS) -> dict[str, list[pa.Table]]:
    """The chunks of the generated data, by table."""
    files = open_folder(folder, TABLES)
    with ThreadPoolExecutor(2) as workers:

        def chunks(name: str) -> list[pa.Table]:
            read = read_chunks(files, TABLES[name], workers, lambda _: None, chunk_rows=chunk_rows)
            return [chunk.rows for chunk in read]

        return {name: chunks(name) for name in MEASURED}


def wild(chunks: dict[str, list[pa.Table]]) -> dict[str, list[pa.Table]]:
    """The same chunks with random numbers in place of amounts, counts and ids."""
    draw = np.random.default_rng(7)
    ends = {Kind.MONEY: 10**9, Kind.COUNT: 1_000, Kind.ID: 5_000}

    def random_numbers(rows: pa.Table) -> pa.Table:
        for index, name in enumerate(rows.column_names):
            column = next(c for table in TABLES.values() for c in table.packed.columns if c.name == name)
            if column.kind in ends and not column.is_optional:
                numbers = pa.array(draw.integers(0, ends[column.kind], rows.num_rows))
                rows = rows.set_column(index, rows.schema.field(index), numbers)
        return rows

    return {name: [random_numbers(rows) for rows in tables] for name, tables in chunks.items()}


Work = Callable[[], object]


def cpu_seconds(work: Work) -> float:
    """CPU seconds of this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def jvm_seconds(spark: SparkSession, work: Work) -> float:
    """CPU seconds of Spark's JVM and its children."""
    assert spark.sparkContext._gateway is not None
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)

    def total() -> float:
        family = [jvm, *jvm.children(recursive=True)]
        return sum(times.user + times.system for times in (process.cpu_times() for process in family))

    begun = total()
    work()
    return total() - begun


def least(seconds: Callable[[Work], float], works: Sequence[Work], rounds: int) -> list[float]:
    """The least seconds of each work over some rounds. All take turns, since the load changes."""
    figures = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(of_work) for of_work in zip(*figures, strict=True)]


def frames(spark: SparkSession, landing: Path) -> Iterator[tuple[PartialPlan, DataFrame]]:
    """The partials of all chunks, as a batch computes them."""
    for plan in CATALOG.partials:
        files = sorted(map(str, landing.glob(f"table={plan.fact}/**/*.parquet")))
        for part in range(TASKS):
            rows = read_table(spark, str(landing), TABLES[plan.fact], files[part::TASKS])
            rows = rows.drop("table", RUN, SHARD).coalesce(1)
            yield plan, rows.transform(partial_of(plan, CATALOG.parameters))


def compute(frames: list[DataFrame]) -> None:
    """Computes all rows and discards them."""
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    whole.write.format("noop").mode("overwrite").save()


def read(spark: SparkSession, landing: Path) -> None:
    compute([frame for _, frame in frames(spark, landing)])


def land(encoder: Encoder, chunks: dict[str, list[pa.Table]], landing: Path) -> list[Path]:
    """Writes the chunks below `landing` and returns their files, in the order of the chunks."""
    files = []
    for name, tables in chunks.items():
        folder = landing / f"table={name}" / "shard=0" / "run=r"
        folder.mkdir(parents=True)
        for number, rows in enumerate(tables):
            files.append(folder / f"{number:05}.parquet")
            files[-1].write_bytes(encoder(TABLES[name], rows))
    return files


def check(file: Path) -> None:
    name = next(part for part in file.parts if part.startswith("table=")).removeprefix("table=")
    finding = examine(
        Order(str(file), PARQUET, name, list(TABLES[name].schema.names), "", "", 64 << 20, 1 << 20)
    )
    assert finding.refusal is None, finding


def encode_all(encoder: Encoder, chunks: dict[str, list[pa.Table]]) -> None:
    for name, tables in chunks.items():
        for rows in tables:
            encoder(TABLES[name], rows)


def check_all(landing: Path) -> None:
    for file in landing.rglob("*.parquet"):
        check(file)


class SparkFiles:
    """Partials of a batch and sorted files. Their rows are cached, so that only writing is measured."""

    def __init__(self, spark: SparkSession, landing: Path, scratch: Path) -> None:
        self._spark, self._scratch = spark, scratch
        origin = {RUN: f.lit("r"), SHARD: f.lit(0)}
        computed = [(plan, frame.withColumns(origin).cache()) for plan, frame in frames(spark, landing)]
        self._partials = [(plan.name, frame) for plan, frame in computed]
        listed = reduce(DataFrame.union, [frame for plan, frame in computed if plan == LISTED])
        self._sorted = listed.drop(RUN, SHARD).repartition(1).sortWithinPartitions("s0").cache()
        compute([frame for _, frame in self._partials])
        compute([self._sorted])

    def folder(self, kind: str, codec: str) -> Path:
        return self._scratch / f"{kind}-{codec}"

    def write_partials(self, codec: str) -> None:
        partials.write(self._partials, str(self._emptied("partials", codec)))

    def read_partials(self, codec: str) -> None:
        target = self.folder("partials", codec)
        compute(
            [
                partials.read(self._spark, str(target), plan, sorted(map(str, files)))
                for plan in CATALOG.partials
                for files in [target.glob(f"run=*/kind={plan.name}/*.parquet")]
            ]
        )

    def write_sorted(self, codec: str) -> None:
        self._sorted.write.parquet(str(self._emptied("sorted", codec)))

    def read_sorted(self, codec: str) -> None:
        for batch in ComputedAnswer(files=tuple(self.folder("sorted", codec).glob("*.parquet"))).batches():
            assert batch.num_rows

    def _emptied(self, kind: str, codec: str) -> Path:
        self._spark.conf.set(SPARK_CODEC, codec)
        shutil.rmtree(self.folder(kind, codec), ignore_errors=True)
        return self.folder(kind, codec)


def megabytes_in(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6


def print_table(*rows: Sequence[object]) -> None:
    head, *others = rows
    for row in (head, ["---"] * len(head), *others):
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row)
        print(f"| {' | '.join(cells)} |", flush=True)
    print()


def measure_chunks(
    spark: SparkSession, kind: str, chunks: dict[str, list[pa.Table]], scratch: Path, rounds: int
) -> None:
    landings = {name: scratch / f"landing-{number}" for number, name in enumerate(CANDIDATES)}
    for name, encoder in CANDIDATES.items():
        land(encoder, chunks, landings[name])
    encodings = [partial(encode_all, encoder, chunks) for encoder in CANDIDATES.values()]
    checks = [partial(check_all, landings[name]) for name in CANDIDATES]
    reads = [partial(read, spark, landings[name]) for name in CANDIDATES]
    of_jvm = partial(jvm_seconds, spark)
    least(of_jvm, reads, WARM_UPS)
    print_table(
        ("data", "chunks", "MB", "encode", "examine", "Spark reads"),
        *zip(
            [kind] * len(CANDIDATES),
            CANDIDATES,
            [megabytes_in(landings[name]) for name in CANDIDATES],
            least(cpu_seconds, encodings, rounds),
            least(cpu_seconds, checks, rounds),
            least(of_jvm, reads, rounds),
            strict=True,
        ),
    )


def measure_spark_files(
    spark: SparkSession, kind: str, chunks: dict[str, list[pa.Table]], scratch: Path, rounds: int
) -> None:
    land(encode, chunks, scratch / "landing")
    files = SparkFiles(spark, scratch / "landing", scratch)
    of_jvm = partial(jvm_seconds, spark)
    for name, write, read, reader in (
        ("partials", files.write_partials, files.read_partials, of_jvm),
        ("sorted", files.write_sorted, files.read_sorted, cpu_seconds),
    ):
        writes, reads = ([partial(work, codec) for codec in SPARK_CODECS] for work in (write, read))
        least(of_jvm, writes, WARM_UPS)
        least(reader, reads, WARM_UPS)
        print_table(
            ("data", "files", "codec", "MB", "Spark writes", "read"),
            *zip(
                [kind] * len(SPARK_CODECS),
                [name] * len(SPARK_CODECS),
                SPARK_CODECS,
                [megabytes_in(files.folder(name, codec)) for codec in SPARK_CODECS],
                least(of_jvm, writes, rounds),
                least(reader, reads, rounds),
                strict=True,
            ),
        )
    spark.catalog.clearCache()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["chunks", "files of Spark"])
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    known = tame(arguments.data)
    print(f"{sum(t.num_rows for tables in known.values() for t in tables):,} rows, {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory(prefix="kopitiam-codecs-") as folder:
        scratch = Path(folder)
        with spark_session(SparkOptions(master=f"local[{TASKS}]"), scratch) as session:
            for kind, chunks in {"tame": known, "wild": wild(known)}.items():
                spark = session.result()
                if arguments.only != "files of Spark":
                    measure_chunks(spark, kind, chunks, scratch / f"{kind}-chunks", arguments.rounds)
                if arguments.only != "chunks":
                    measure_spark_files(spark, kind, chunks, scratch / f"{kind}-files", arguments.rounds)


if __name__ == "__main__":
    main()
