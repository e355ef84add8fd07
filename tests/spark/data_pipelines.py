"""Data sets in front of a pipeline of the test's process: files are stored and registered as gateways do."""

import hashlib
import random
from typing import Any

from chunked_sales import NAMES, Chunk, Rows, in_normal_form, plain, sales
from pipelines import FOR_LONG, Answers, Pipeline

from catalog_tables import TABLES
from kopitiam.contracts.data_sets import DataRequest, SourceFile, shard_of_file
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.parameters import Parameters
from kopitiam.landing.chunks import encode

Files = dict[tuple[str, str], Rows]
DATA_SET = "sales"
NAME_FILES: Files = {(table, f"{table}.csv"): rows for table, rows in NAMES.items()}
CHUNK_ROWS = 9


def month(number: int, seed: int, count: int = 20) -> Files:
    """Sales and items of one month's file; their dates are any, as in a bad export."""
    drawn = sales(seed, count)
    return {
        (table, f"{table}_{number:02}.csv"): drawn[table] for table in ("transactions", "transaction_items")
    }


class DataPipeline:
    """A pipeline with one data set; `versions` has the files of each version."""

    def __init__(self, pipeline: Pipeline, versions: list[Files] | None = None) -> None:
        self.pipeline = pipeline
        self.versions = versions or []

    def submit(self, files: Files, parameters: Parameters | None = None) -> str:
        """Send files and seal the run."""
        run = self._open(DataRequest(DATA_SET, is_upload=True), parameters)
        described = [_described(key, rows) for key, rows in files.items()]
        for file, rows in zip(self.pipeline.registry.name_files(run, described), files.values(), strict=True):
            if file.run == run:
                self._send(run, file.file, file.table, rows)
        self.pipeline.registry.seal_run(run)
        before = self.versions[-1] if self.versions else {}
        if before != before | files:
            self.versions.append(before | files)
        return run

    def ask(self, parameters: Parameters | None = None, version: int | None = None) -> str:
        return self._open(DataRequest(DATA_SET, is_upload=False, version=version), parameters)

    def _open(self, request: DataRequest, parameters: Parameters | None) -> str:
        opened = self.pipeline.registry.open_data_run(
            (parameters or Parameters()).to_dict(),
            "",
            "me",
            request,
            idempotency_key=None,
            lease_seconds=FOR_LONG,
            shards=self.pipeline.shards,
        )
        return opened.run.run

    def _send(self, run: str, file: str, table: str, rows: Rows) -> None:
        registry, chunks = (
            self.pipeline.registry,
            [rows[begin : begin + CHUNK_ROWS] for begin in range(0, len(rows), CHUNK_ROWS)],
        )
        for number, part in enumerate(chunks):
            content = encode(TABLES[table], in_normal_form(table, part))
            shard = shard_of_file(file, number, self.pipeline.shards)
            self.pipeline.storage.replace(KEYS.chunk(file, table, shard, number), content)
            digest = hashlib.sha256(content).hexdigest()
            sizes: dict[str, Any] = {"rows": len(part), "bytes": len(content), "rejected": 0}
            registry.register_file_chunk(run, file, number, digest=digest, landed=digest, **sizes)
        assert registry.end_file(run, file, len(chunks), len(rows)).sealed

    def answered(self, run: str) -> Answers:
        self.pipeline.process()
        self.pipeline.finish(run)
        return self.pipeline.answers(run)

    def expected(self, parameters: Parameters | None = None, version: int | None = None) -> Answers:
        """The answers over the files of a version, computed without Spark."""
        files = self.versions[-1 if version is None else version - 1]
        return plain([Chunk(table, 0, rows) for (table, _), rows in files.items()], parameters)

    def computed(self, run: str) -> int:
        """How many chunks the run has to process itself."""
        return sum(len(self.pipeline.registry.chunks(run, table)) for table in TABLES)

    def partials_on_disk(self) -> set[str]:
        home = self.pipeline.home.partials
        return {str(folder.relative_to(home)) for folder in home.glob("*/*/*/*")}


def _described(key: tuple[str, str], rows: Rows) -> SourceFile:
    table, name = key
    digest = hashlib.sha256(repr(list(rows)).encode()).hexdigest()
    return SourceFile(table, name, digest, len(rows), tuple(column.name for column in TABLES[table].columns))


def some_months(draw: random.Random, most: int = 3) -> Files:
    """New and old months in any order, some of them with other rows than before."""
    files: Files = {}
    for number in draw.sample(range(1, 5), draw.randint(1, most)):
        files |= month(number, seed=draw.choice([number, number, 50 + number]))
    return files
