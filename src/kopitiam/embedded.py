"""Everything in one process: a folder of CSVs in, answers out, nothing left running."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kopitiam.client.chunks import Chunk, in_order, read_chunks
from kopitiam.client.folder import InputFolder
from kopitiam.contracts.errors import BadRows, InputError
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import TABLES
from kopitiam.landing.layout import Home
from kopitiam.landing.quarantine import Quarantine
from kopitiam.landing.writer import encode, write_once
from kopitiam.pipeline.batch import answer
from kopitiam.pipeline.progress import tasks_reported
from kopitiam.pipeline.session import SparkOptions, spark_session
from kopitiam.results.answers import AnswerSet
from kopitiam.results.forms import REJECTED_FILE, write_forms
from kopitiam.results.summary import RowCount, Summary

_RUN = "analyze"
_CHUNKS_AHEAD = 4


@dataclass(frozen=True)
class Watch:
    """Who wants to be told how it goes; the default is nobody."""

    on_bytes: Callable[[int], None] = lambda _: None
    on_step: Callable[[str], None] = lambda _: None
    on_tasks: Callable[[int, int], None] = lambda _done, _all: None


@dataclass(frozen=True)
class Analysis:
    answers: AnswerSet
    summary: Summary
    quarantine: Quarantine


@contextmanager
def analysis(
    folder: InputFolder,
    questions: Questions,
    options: SparkOptions,
    out: Path | None = None,
    is_strict: bool = False,
    watch: Watch = Watch(),
) -> Iterator[Analysis]:
    """The answers, readable until the block is left; with `out` also as files there."""
    begun = time.monotonic()
    with _workspace() as workspace, spark_session(options, workspace) as coming:
        with Quarantine(workspace / REJECTED_FILE) as quarantine:
            used = _land(folder, Home(workspace), quarantine, watch)
        if is_strict and quarantine.counts:
            raise BadRows(_bad_rows(quarantine))
        watch.on_step("starting Spark")
        spark = coming.result()
        folders = {name: [Home(workspace).table_folder(_RUN, name, 0)] for name in TABLES}
        with tasks_reported(spark, watch.on_tasks):
            answers = AnswerSet(answer(spark, folders, questions, workspace, watch.on_step))
        summary = Summary(
            questions,
            {name: RowCount(used[name], quarantine.counts[name]) for name in TABLES},
            answers.unmatched(),
            {name: answers.rows(name) for name in ANSWERS},
            time.monotonic() - begun,
        )
        if out is not None:
            write_forms(out, answers, summary)
            _publish_rejected(quarantine, out)
        yield Analysis(answers, summary, quarantine)


def require_writable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"{out}: cannot write answers there: {error.strerror}") from None


def _land(folder: InputFolder, home: Home, quarantine: Quarantine, watch: Watch) -> dict[str, int]:
    """Every table as durable chunk files; gives the rows of each."""

    def store(chunk: Chunk) -> int:
        path = home.chunk(_RUN, chunk.table.name, 0, chunk.number)
        write_once(path, encode(chunk.table, chunk.rows))
        return int(chunk.rows.num_rows)

    def landed(name: str) -> int:
        chunks = read_chunks(folder, name, parsers, lambda row: quarantine.add(name, row), watch.on_bytes)
        return sum(in_order(writers, store, chunks, _CHUNKS_AHEAD))

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as parsers, ThreadPoolExecutor(cores) as writers:
        return {name: landed(name) for name in TABLES}


def _publish_rejected(quarantine: Quarantine, out: Path) -> None:
    (out / REJECTED_FILE).unlink(missing_ok=True)  # an earlier run's
    if quarantine.counts:
        shutil.copyfile(quarantine.path, out / REJECTED_FILE)


def _bad_rows(quarantine: Quarantine) -> str:
    first = quarantine.examples[0]
    count = quarantine.counts.total()
    return f"{count:,} bad row{'s' if count > 1 else ''}; the first: {first.file}, line {first.line}: {first.reason}"


@contextmanager
def _workspace() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kopitiam-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
