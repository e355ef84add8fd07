"""A data set over a bare registry: clients that send files, and a pipeline that only counts rows.

A file is spelled as `{(table, name): content}`. Its content is a text: its digest, and, by its length, the
number of its chunks of ten rows each.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kopitiam.contracts.batches import Batch, FileRows, Partial, Processed
from kopitiam.contracts.data_sets import DataFile, DataRequest, SourceFile
from kopitiam.contracts.progress import is_processed
from kopitiam.contracts.runs import LogEntry
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry import Registry

ROWS = 10
SALES = ("transactions", "transaction_items")
NAMES = {(table, f"{table}.csv"): "n" for table in ("stores", "menu_items", "users")}
Files = Mapping[tuple[str, str], str]


def month(number: int, content: str = "m") -> Files:
    return {(table, f"{table}_2024{number:02}.csv"): content for table in SALES}


class DataWorld:
    def __init__(self, registry: Registry, owner: str = "anna", shards: int = 1) -> None:
        self.registry = registry
        self.owner = owner
        self.shards = shards
        self._batches = itertools.count()

    # -- clients

    def open(self, name: str = "sales", version: int | None = None, **options: Any) -> str:
        """Open a run that sends files."""
        return self._open(DataRequest(name, True, version), **options)

    def ask(self, name: str = "sales", version: int | None = None, **options: Any) -> str:
        return self._open(DataRequest(name, False, version), **options)

    def _open(self, request: DataRequest, key: str | None = None, most: int = 10, **questions: Any) -> str:
        opened = self.registry.open_data_run(
            questions or {"top": 3},
            "",
            self.owner,
            request,
            idempotency_key=key,
            lease_seconds=60,
            shards=self.shards,
            max_data_sets=most,
        )
        return opened.run.run

    def send(self, run: str, files: Files, columns: Iterable[str] = ()) -> list[DataFile]:
        """Name the files, send the chunks of those that are not held, and end them."""
        named = self.registry.name_files(run, [source_file(*entry, columns) for entry in files.items()])
        for file, content in zip(named, files.values(), strict=True):
            if file.run == run and not file.is_ended:
                for number in range(len(content)):
                    self.put(run, file, number)
                ended = self.registry.end_file(run, file.file, len(content), ROWS * len(content))
                assert ended.sealed, ended
        return named

    def put(self, run: str, file: DataFile, number: int, digest: str = "d") -> Any:
        sizes = {"rows": ROWS, "bytes": 100, "rejected": 0}
        return self.registry.register_file_chunk(run, file.file, number, digest=digest, **sizes)

    def submit(self, files: Files, name: str = "sales", **options: Any) -> str:
        """Send the files and seal the run on top of the newest version."""
        run = self.open(name, **options)
        self.send(run, files)
        self.registry.seal_run(run)
        return run

    def finish(self, run: str) -> None:
        """Process everything in the log, open the barrier of the run, and publish its answers."""
        self.process()
        assert self.registry.open_barrier(run)
        self.registry.publish_results(run, f"attempt-{run}", {})
        self.registry.delete_chunks(run)

    def answered(self, files: Files, name: str = "sales") -> str:
        run = self.submit(files, name)
        self.finish(run)
        return run

    # -- the pipeline

    def process(self) -> None:
        """Process the whole log: count the rows of every chunk, and write a partial for every plan."""
        lanes = [lane for shard in range(self.shards) for lane in (shard, 1024 + shard)]
        positions = self.registry.positions(lanes)
        spans = {lane: (positions[lane], self.registry.last_sequence(lane)) for lane in lanes}
        entries = [entry for lane, span in spans.items() for entry in self.registry.read_span(lane, *span)]
        number = next(self._batches)
        counts: Counter[tuple[str, str, int]] = Counter()
        for entry in entries:
            counts[entry.run, entry.table, entry.shard] += 1
        processed = tuple(Processed(*key, count, count * ROWS) for key, count in counts.items())
        partials, file_rows = self._computed(entries, number)
        batch = Batch("query", number, spans, processed, tuple(partials), (), tuple(file_rows))
        self.registry.commit_batch(batch)

    def _computed(self, entries: list[LogEntry], batch: int) -> tuple[list[Partial], list[FileRows]]:
        partials, counted = [], []
        by_file: dict[tuple[str, str, str], list[LogEntry]] = defaultdict(list)
        for entry in entries:
            if (origin := self.origin_of(entry)) is not None:
                by_file[entry.run, origin, entry.table].append(entry)
        for (run, file, table), of_file in by_file.items():
            question_set = QuestionSet.from_dict(self.registry.get_run(run).questions)
            for plan in question_set.partials:
                if plan.fact == table:
                    path = f"pipeline=p/batch={batch}-{run}/run={file}/kind={plan.name}"
                    partials.append(Partial(run, path, rows=len(of_file), origin=file))
                    for entry, step in itertools.product(of_file, range(len(plan.steps) + 1)):
                        counted.append(FileRows(run, file, plan.name, step, entry.shard, ROWS))
        return partials, counted

    def origin_of(self, entry: LogEntry) -> str | None:
        for chunk in self.registry.chunks(entry.run, entry.table):
            if chunk.number == entry.number:
                return chunk.origin.file if chunk.origin else None
        return None

    # -- what there is

    def files(self, version: int | None = None, name: str = "sales") -> dict[tuple[str, str], str]:
        """The content of a version."""
        data_set = self.registry.data_set(self.owner, name)
        number = data_set.newest if version is None else version
        return {file.key: file.digest for file in self.registry.version_files(data_set.id, number)}

    def newest(self, name: str = "sales") -> int:
        return self.registry.data_set(self.owner, name).newest

    def logged(self, run: str) -> set[tuple[str, str]]:
        """The files whose chunks the run processes itself."""
        origins = {
            chunk.origin.file
            for table in LAYOUT
            for chunk in self.registry.chunks(run, table)
            if chunk.origin
        }
        return {file.key for file in self.registry.run_files(run) if file.file in origins}

    def reused(self, run: str) -> set[tuple[str, str]]:
        """The files whose kept partials the run uses."""
        origins = {p.origin for p in self.registry.partials(run) if p.kept_as is not None}
        return {file.key for file in self.registry.run_files(run) if file.file in origins}

    def is_complete(self, run: str) -> bool:
        return is_processed(self.registry.snapshot(run))


def source_file(key: tuple[str, str], content: str, columns: Iterable[str] = ()) -> SourceFile:
    table, name = key
    every = tuple(columns) or tuple(LAYOUT[table].by_name)
    return SourceFile(table, name, content, 10 * len(content), every)
