"""The pipeline at work: takes sealed runs one after the other, answers them, publishes the answers."""

import logging
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from kopitiam.contracts.errors import IllegalTransition, KopitiamError, RunNotFound, RunOver, Unavailable
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.runs import Run, RunState
from kopitiam.contracts.tables import TABLES
from kopitiam.landing.layout import Home
from kopitiam.landing.writer import make_folder, sync_folder
from kopitiam.pipeline.batch import answer
from kopitiam.pipeline.progress import tasks_reported
from kopitiam.registry.port import RegistryPort
from kopitiam.results.answers import AnswerSet
from kopitiam.results.forms import write_forms
from kopitiam.results.summary import RowCount, Summary

_LOOK_SECONDS = 0.2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """Who wants to be told how it goes; the default is nobody."""

    on_step: Callable[[str], None] = lambda _: None
    on_tasks: Callable[[int, int], None] = lambda _done, _all: None


UNWATCHED = Watch()


@dataclass(frozen=True)
class Worker:
    name: str
    registry: RegistryPort
    home: Home
    session: Future[SparkSession]
    scratch: Path
    watch: Watch = UNWATCHED
    stopping: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Until told to stop. A run in hand then is taken up again by the next life of this worker."""
        while not self.stopping.wait(_LOOK_SECONDS):
            try:
                for run in self.registry.runs_in(RunState.SEALED, RunState.FINAL):
                    if self.stopping.is_set():
                        return
                    self._take(run)
            except Unavailable as error:
                _log.warning("registry: %s", error)

    def _take(self, run: Run) -> None:
        try:
            if not self.registry.claim_final(run.run, self.name):
                return
            self._answer(run)
        except (RunOver, RunNotFound, IllegalTransition):
            _log.info("run %s is over, its answers are not wanted", run.run)
        except Unavailable:
            raise  # the run stays claimed, and is tried again
        except KopitiamError as error:
            self._fail(run, str(error))
        except Exception as error:
            if self.stopping.is_set():
                return
            _log.exception("run %s", run.run)
            self._fail(run, f"{type(error).__name__}: {error}")

    def _answer(self, run: Run) -> None:
        attempt = self.home.attempt(run.run, uuid.uuid4().hex)
        figures = self.registry.figures(run.run)
        files = {name: self._chunk_files(run, name) for name in TABLES}
        questions = Questions.from_dict(run.questions)
        with tempfile.TemporaryDirectory(prefix=f"run-{run.run}-", dir=self.scratch) as scratch:
            spark = self.session.result()
            with tasks_reported(spark, self.watch.on_tasks):
                answers = AnswerSet(answer(spark, files, questions, Path(scratch), self.watch.on_step))
            summary = Summary(
                questions,
                {name: RowCount(state.rows, state.rejected) for name, state in figures.tables.items()},
                answers.unmatched(),
                {name: answers.rows(name) for name in ANSWERS},
                time.time() - run.created_at,
            )
            make_folder(attempt)
            try:
                write_forms(attempt, answers, summary)
                sync_folder(attempt)
                self.registry.publish_results(
                    run.run, attempt.name.removeprefix("attempt="), summary.to_dict()
                )
            except KopitiamError:
                shutil.rmtree(attempt, ignore_errors=True)
                raise
        self._clean_up(run, attempt)

    def _chunk_files(self, run: Run, table: str) -> list[Path]:
        chunks = self.registry.chunks(run.run, table)
        return [self.home.chunk(run.run, table, chunk.shard, chunk.number) for chunk in chunks]

    def _clean_up(self, run: Run, published: Path) -> None:
        """The answers stay; what led to them goes, as do attempts of lives that were cut short."""
        for folder in (*self.home.landing_folders(run.run), *published.parent.glob("attempt=*")):
            if folder != published:
                shutil.rmtree(folder, ignore_errors=True)
        self.registry.forget_chunks(run.run)

    def _fail(self, run: Run, error: str) -> None:
        try:
            self.registry.move(run.run, RunState.FAILED, error)
        except (RunOver, RunNotFound, IllegalTransition):
            return
        for folder in self.home.landing_folders(run.run):
            shutil.rmtree(folder, ignore_errors=True)
