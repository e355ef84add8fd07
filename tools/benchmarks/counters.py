"""Measures the CPU that the counters of stages add to a batch.

    kopi generate --out data --scale 0.04
    python -m tools.benchmarks.counters data

Computes the same batch of the catalog's questions in turns: without the counts of conditions that no partial
holds, with them, and with them when chunk statistics never give the count, so that Spark counts every row.
The count within each partial stays in all three: it is one addition a row. Prints Java's CPU seconds and the
ratios.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

from pyspark.sql import SparkSession

from kopitiam.contracts.runs import LogEntry, Run, RunState
from kopitiam.contracts.tables import CHUNK_ROWS
from kopitiam.landing.chunks import encode, inspect
from kopitiam.pipeline import batch_frames
from kopitiam.pipeline.batch_frames import Share
from kopitiam.pipeline.partials import counted_fact
from kopitiam.spark.session import spark_session
from kopitiam.spark.settings import SparkOptions
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key
from tools.benchmarks.codecs import CATALOG, compute, jvm_seconds, land, tame

WARM_UPS = 6  # until Java's compiler is done


def landed_share(data: Path, storage: LocalStorage, home: Path, chunk_rows: int = CHUNK_ROWS) -> Share:
    """All chunks of the data as one batch of one run."""
    run = Run("r", "", RunState.OPEN, CATALOG.to_dict(), "", 1, 0.0, 0.0)
    chunks = tame(data, chunk_rows)
    files = iter(land(encode, chunks, home / "landing"))
    keys, inspections = {}, {}
    for table, tables in chunks.items():
        for number, rows in enumerate(tables):
            file = next(files)
            entry = LogEntry(0, len(keys) + 1, "r", table, number, rows.num_rows, file.stat().st_size)
            keys[entry] = Key(str(file.relative_to(home)))
            inspections[entry] = inspect(storage, keys[entry], rows.num_rows, None)
    return Share(run, keys, dict.fromkeys(keys), inspections)


def batches(spark: SparkSession, storage: LocalStorage, share: Share) -> dict[str, Callable[[], None]]:
    """The three ways to compute the batch, by name."""

    def batch(has_counts: bool) -> None:
        frames = batch_frames.frames(spark, storage, [share])
        compute([frame for kind, frame in frames if has_counts or counted_fact(kind) is None])

    def counted_by_spark() -> None:
        with patch.object(batch_frames, "counts_of_chunk", return_value=None):
            batch(has_counts=True)

    return {
        "without counts": lambda: batch(has_counts=False),
        "with counts": lambda: batch(has_counts=True),
        "with every row counted by Spark": counted_by_spark,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-counters-") as folder,
        spark_session(SparkOptions(master="local[2]"), Path(folder)) as session,
    ):
        home = Path(folder, "home")
        storage = LocalStorage(home)
        spark = session.result()
        works = batches(spark, storage, landed_share(arguments.data, storage, home))
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for number in range(WARM_UPS + arguments.rounds):
            for name, work in works.items():
                spent = jvm_seconds(spark, work)
                if number >= WARM_UPS:
                    seconds[name].append(spent)
    base = median(seconds["without counts"])
    for name, spent in seconds.items():
        print(f"{name}: {median(spent):.2f} s, ratio {median(spent) / base:.3f}")


if __name__ == "__main__":
    main()
