"""The final step of a run: claimed, answered from partials, published by one commit, tidied up.

Provisional answers take the same way from what is there so far, without claim and without an end.
"""

import contextlib
import json
import logging
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kopitiam.contracts.batches import Partial, Step
from kopitiam.contracts.errors import (
    AlreadyPublished,
    IllegalTransition,
    KopitiamError,
    PartialsDiffer,
    RegistryUnavailable,
    RunFailed,
    RunNotFound,
    RunOver,
    StaleEpoch,
    Unavailable,
)
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, Run
from kopitiam.landing.chunks import chunk_key, file_digest, inspect
from kopitiam.landing.tidying import remove_material
from kopitiam.pipeline.answering import Material, answer
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.partials import files_of, kind_of
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.tables import table_size
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import RunAccount
from kopitiam.results.answer_files import write_answers
from kopitiam.results.summary import Coverage, RowCount, RunSummary, fingerprint
from kopitiam.storage.port import Key
from kopitiam.system.crash_points import crash_point

_NOT_WANTED = (RunOver, RunNotFound, IllegalTransition, AlreadyPublished)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """Answers at rest: their account, the digest of each file if they stay, and the rows that passed the
    stages behind the barrier."""

    summary: RunSummary
    digests: dict[str, str]
    flows: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Finalizer:
    work: BatchWork
    scratch: Path

    def finish(self, run: str) -> int | None:
        """The number of rows in the answers, or None if there is nothing for us to do."""
        registry = self.work.registry
        try:
            if not registry.claim_final(run, self.work.fence):
                return None
            crash_point("final.claimed")
            with self._trying("final", run):
                return self._publish(registry.get_run(run))
        except _NOT_WANTED:
            _log.info("run %s is over, its answers are not wanted", run, extra={"run": run})
        except StaleEpoch as error:
            _log.warning("run %s is left to another: %s", run, error, extra={"run": run})
        except Unavailable:
            registry.release_claim(run, self.work.fence)
            raise
        except PartialsDiffer:
            self._give_up_in_time(run)
            raise
        except KopitiamError as error:
            if not self.work.is_closing:
                self._blame(run, str(error))
        except Exception:
            if not self.work.is_closing:
                self._give_up_in_time(run)
            raise
        return None

    def provide(self, run: str) -> None:
        """Answers to what has come so far, under a fresh name that the registry then knows."""
        if not self.work.registry.get_run(run).state.is_over:
            with self._trying("provisional", run):
                self._provide(run)

    @contextlib.contextmanager
    def _trying(self, step: Step, run: str) -> Iterator[None]:
        """`RunFailed` if it was tried often enough. After an attempt that ended badly, nothing else is at
        work beside it."""
        attempts = self.work.attempts
        given_up, suspects = attempts.verdicts(step, [run])
        if run in given_up:
            raise RunFailed(given_up[run])
        with attempts.trying(step, [run], alone=bool(suspects)) as attempt:
            yield
        attempts.done(attempt)  # what is published has forgotten it

    def _give_up_in_time(self, run: str) -> None:
        """Right after the last attempt, rather than before the next one."""
        given_up, _ = self.work.attempts.verdicts("final", [run])
        if run in given_up:
            self._blame(run, given_up[run])

    def _provide(self, run: str) -> None:
        registry = self.work.registry
        account = registry.run_account(run)
        if account.figures.run.state.is_over:
            return None
        storage, folder = self.work.storage, KEYS.provisional(run, uuid.uuid4().hex)
        coverage = Coverage.of(account.processed, account.figures.tables)
        latest = registry.provisional(run)
        if latest is not None and latest.figures == json.loads(json.dumps(asdict(coverage))):
            return None  # nothing has been processed since
        try:
            with self._writing(folder):
                self._write(account, folder, Stopwatch(), coverage)
        except RunFailed:
            if registry.partials(run) == list(account.partials):
                raise
            return self._provide(run)  # what was to be read has been merged meanwhile
        before = registry.provisional(run)
        if not registry.publish_provisional(run, folder.name.partition("=")[2], asdict(coverage)):
            storage.remove(folder)
            return None
        kept = {folder, before and KEYS.provisional(run, before.attempt)}  # it may be read now
        for old in storage.find(f"{KEYS.results(run)}/provisional=*"):
            if old not in kept:
                storage.remove(old)
        return None

    def _publish(self, run: Run) -> int:
        name, watch = uuid.uuid4().hex, Stopwatch()
        attempt = KEYS.attempt(run.run, name)
        with self._writing(attempt):
            written = self._write(self.work.registry.run_account(run.run), attempt, watch)
        crash_point("results.written")
        figures = written.summary.to_dict() | {"stages": written.flows}
        try:
            self.work.registry.publish_results(run.run, name, figures, self.work.fence, written.digests)
        except KopitiamError as error:
            if not (isinstance(error, RegistryUnavailable) and self._is_published(run.run, name)):
                self.work.storage.remove(attempt)
                raise
        crash_point("results.published")
        self.work.health.got_on()
        with watch.lap("clean up"):
            try:
                self.clean_up(run.run, attempt)
            except Unavailable as error:  # the answers are out; a gateway tidies up later
                _log.warning("run %s is not tidied up yet: %s", run.run, error, extra={"run": run.run})
        _log.info("run %s answered", run.run, extra={"run": run.run, "seconds": watch.seconds})
        return sum(written.summary.answers.values())

    def _is_published(self, run: str, attempt: str) -> bool:
        """Where a commit broke, and may have taken effect: handed back first, so that it no longer can.

        `Unavailable` if nobody knows; then the attempt stays, for the next one or a gateway to tidy up.
        """
        self.work.registry.release_claim(run, self.work.fence)
        published = self.work.registry.results(run)
        return published is not None and published.attempt == attempt

    @contextlib.contextmanager
    def _writing(self, folder: Key) -> Iterator[None]:
        """What led to nothing goes. A disk without room is no fault of the run, which is `Unavailable`."""
        try:
            yield
        except (KopitiamError, OSError) as error:
            self.work.storage.remove(folder)
            if isinstance(error, KopitiamError) or self.work.is_closing:
                raise
            raise Unavailable(f"answers cannot be written: {error.strerror or error}") from error

    def _write(
        self, account: RunAccount, target: Key, watch: Stopwatch, coverage: Coverage | None = None
    ) -> "Written":
        figures, run = account.figures, account.figures.run
        asked = QuestionSet.of_run(run.questions)
        with self._material(account, asked) as (material, scratch):
            answered = answer(self.work.spark, material, scratch, watch)
            answers = answered.answers
            summary = RunSummary(
                asked,
                {name: RowCount(state.rows, state.rejected) for name, state in figures.tables.items()},
                answers.unmatched(),
                {question.name: answers.rows(question.name) for question in asked.questions},
                self.work.registry.now() - run.created_at,
                coverage,
                self._fingerprint(run.run, asked) if coverage is None else None,
            )
            with watch.lap("forms"), self.work.storage.new_folder(target, scratch) as out:
                write_answers(out, answers, summary)
                digests = {file.name: file_digest(file) for file in out.iterdir()} if coverage is None else {}
        flows = {stage: asdict(flow) for stage, flow in answered.flows.items()}
        return Written(summary, digests, flows)

    def _fingerprint(self, run: str, asked: QuestionSet) -> str:
        """While the chunks are still known: they are forgotten when the answers are out."""
        return fingerprint(chunk for table in asked.tables for chunk in self.work.registry.chunks(run, table))

    @contextlib.contextmanager
    def _material(self, account: RunAccount, asked: QuestionSet) -> Iterator[tuple[Material, Path]]:
        """With a folder on this machine; what is sorted on the way goes with it."""
        run = account.figures.run.run
        _require_own_kinds(account.partials, asked)
        storage, registry = self.work.storage, self.work.registry
        joined = dict.fromkeys(table for question in asked.questions for table in question.looked_up)
        chunks = {table: registry.chunks(run, table) for table in joined}
        files = {table: [self._sound(run, chunk) for chunk in chunks[table]] for table in joined}
        counted = files_of(storage, account.partials)
        partials = {file: each.rows for each in account.partials for file in counted[each.path]}
        sizes = {
            table: table_size(
                storage, asked.tables[table], files[table], sum(chunk.rows for chunk in chunks[table])
            )
            for table in joined
        }
        sorting = KEYS.sorting(run, uuid.uuid4().hex)
        material = Material(run, asked, partials, files, sizes, storage, sorting)
        with tempfile.TemporaryDirectory(prefix=f"run-{run}-", dir=self.scratch) as folder:
            scratch = Path(folder)
            try:
                yield material, scratch
            finally:
                storage.workspace(scratch).remove(material.sorting)

    def _sound(self, run: str, chunk: ChunkRecord) -> Key:
        """Checked again: the batch that saw it may be long ago."""
        key = chunk_key(self.work.storage, run, chunk, chunk.digest, chunk.is_beside)
        inspection = inspect(self.work.storage, key, chunk.rows, chunk.landed)
        if inspection.flaw is not None:
            raise RunFailed(f"{chunk.table} chunk {chunk.number} {inspection.flaw}")
        return key

    def _blame(self, run: str, reason: str) -> None:
        """Unless storage is away, or full: then the answers are to be made again."""
        try:
            self.work.storage.check()
        except Unavailable:
            self.work.registry.release_claim(run, self.work.fence)
            raise
        self.work.fail(run, reason)

    def clean_up(self, run: str, published: Key) -> None:
        """The answers stay; what led to them goes, as do attempts of lives that were cut short."""
        remove_material(self.work.storage, run, published)
        crash_point("cleanup.files")
        self.work.registry.forget_chunks(run)
        crash_point("cleanup.done")


def _require_own_kinds(partials: Iterable[Partial], asked: QuestionSet) -> None:
    """Partials of another version would not be read by any question, and their rows would be lost."""
    known = {plan.name for plan in asked.partials}
    if foreign := sorted({kind_of(partial.path) for partial in partials} - known):
        raise RunFailed(
            f"its partial results ({', '.join(foreign)}) are of another version: send the data again"
        )
