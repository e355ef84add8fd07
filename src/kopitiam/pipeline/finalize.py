"""The final step of a run: claimed, answered from partials, published by one commit, tidied up.

Provisional answers take the same way from what is there so far, without claim and without an end.
"""

import logging
import shutil
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from kopitiam.contracts.crash_points import crash_point
from kopitiam.contracts.errors import (
    AlreadyPublished,
    IllegalTransition,
    KopitiamError,
    RunFailed,
    RunNotFound,
    RunOver,
    StaleEpoch,
    Unavailable,
)
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.runs import Run
from kopitiam.landing.tidying import remove_material
from kopitiam.landing.writer import make_folder, sync_folder
from kopitiam.pipeline.answering import Material, answer
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.stopwatch import Stopwatch
from kopitiam.registry.records import Fence, RunAccount
from kopitiam.results.answers import AnswerSet
from kopitiam.results.forms import write_forms
from kopitiam.results.summary import Coverage, RowCount, Summary

_JOINED = ("stores", "menu_items", "users")
_NOT_WANTED = (RunOver, RunNotFound, IllegalTransition, AlreadyPublished)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finalizer:
    work: BatchWork
    fence: Fence
    scratch: Path

    def finish(self, run: str) -> int | None:
        """The number of rows in the answers, or None if there is nothing for us to do."""
        registry = self.work.registry
        try:
            if not registry.claim_final(run, self.fence):
                return None
            crash_point("final.claimed")
            return self._publish(registry.get_run(run))
        except _NOT_WANTED:
            _log.info("run %s is over, its answers are not wanted", run, extra={"run": run})
        except StaleEpoch as error:
            _log.warning("run %s is left to another: %s", run, error, extra={"run": run})
        except Unavailable:
            registry.unclaim(run, self.fence)
            raise
        except KopitiamError as error:
            if not self.work.is_closing:
                self.work.fail(run, str(error))
        return None

    def provide(self, run: str) -> None:
        """Answers to what has come so far, under a fresh name that the registry then knows."""
        registry = self.work.registry
        account = registry.account(run)
        if account.figures.run.state.is_over:
            return None
        folder = self.work.home.provisional(run, uuid.uuid4().hex)
        coverage = Coverage.of(account.processed, account.figures.tables)
        try:
            self._write(account, folder, Stopwatch(), coverage)
        except RunFailed:
            if registry.partials(run) == list(account.partials):
                raise
            return self.provide(run)  # what was to be read has been merged meanwhile
        before = registry.provisional(run)
        if not registry.publish_provisional(run, folder.name.partition("=")[2], asdict(coverage)):
            shutil.rmtree(folder, ignore_errors=True)
            return None
        kept = {folder, before and self.work.home.provisional(run, before.attempt)}  # it may be read now
        for old in self.work.home.results(run).glob("provisional=*"):
            if old not in kept:
                shutil.rmtree(old, ignore_errors=True)
        return None

    def _publish(self, run: Run) -> int:
        attempt = self.work.home.attempt(run.run, uuid.uuid4().hex)
        watch = Stopwatch()
        try:
            summary = self._write(self.work.registry.account(run.run), attempt, watch)
            crash_point("results.written")
            self.work.registry.publish_results(
                run.run, attempt.name.removeprefix("attempt="), summary.to_dict(), self.fence
            )
        except KopitiamError:
            shutil.rmtree(attempt, ignore_errors=True)
            raise
        crash_point("results.published")
        with watch.lap("clean up"):
            self.clean_up(run.run, attempt)
        _log.info("run %s answered", run.run, extra={"run": run.run, "seconds": watch.seconds})
        return sum(summary.answers.values())

    def _write(
        self, account: RunAccount, target: Path, watch: Stopwatch, coverage: Coverage | None = None
    ) -> Summary:
        figures, run = account.figures, account.figures.run
        questions = Questions.from_dict(run.questions)
        with tempfile.TemporaryDirectory(prefix=f"run-{run.run}-", dir=self.scratch) as scratch:
            answers = AnswerSet(
                answer(self.work.spark, self._material(account, questions), Path(scratch), watch)
            )
            summary = Summary(
                questions,
                {name: RowCount(state.rows, state.rejected) for name, state in figures.tables.items()},
                answers.unmatched(),
                {name: answers.rows(name) for name in ANSWERS},
                time.time() - run.created_at,
                coverage,
            )
            with watch.lap("forms"):
                make_folder(target)
                write_forms(target, answers, summary)
                sync_folder(target)
        return summary

    def _material(self, account: RunAccount, questions: Questions) -> Material:
        run = account.figures.run.run
        home, registry = self.work.home, self.work.registry
        files = {
            table: [
                home.chunk(run, table, chunk.shard, chunk.number) for chunk in registry.chunks(run, table)
            ]
            for table in _JOINED
        }
        paths = [partial.path for partial in account.partials]
        return Material(run, questions, paths, files, home.partials, home.landing)

    def clean_up(self, run: str, published: Path) -> None:
        """The answers stay; what led to them goes, as do attempts of lives that were cut short."""
        remove_material(self.work.home, run, published)
        crash_point("cleanup.files")
        self.work.registry.forget_chunks(run)
        crash_point("cleanup.done")
