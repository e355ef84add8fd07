"""The final step of a run: claim it, answer from partials, publish by one commit, clean up.

Provisional answers are computed in the same way from the partials so far, without a claim.
"""

import contextlib
import json
import logging
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kopitiam.contracts.batches import Partial, Step
from kopitiam.contracts.errors import (
    AlreadyPublished,
    AttemptFailed,
    IllegalTransition,
    JobFailed,
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
from kopitiam.landing.tidying import remove_material, remove_partials
from kopitiam.pipeline.answering import Answered, Material, answer
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.partials import Footers, stored_footers
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.tables import table_size
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import RunAccount
from kopitiam.results.answer_files import write_answers
from kopitiam.results.summary import Coverage, RowCount, RunSummary, fingerprint
from kopitiam.storage.port import Key
from kopitiam.system.crash_points import crash_point

_RUN_IS_OVER = (RunOver, RunNotFound, IllegalTransition, AlreadyPublished)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """Written answers: their summary, the digests of final ones by file, and the rows of the stages behind
    the barrier."""

    summary: RunSummary
    digests: dict[str, str]
    flows: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Finalizer:
    work: BatchWork
    scratch: Path

    def finish(self, run: str) -> int | None:
        """Claims the run and publishes its answers. Returns their rows; None if there was nothing to do.

        Raises Unavailable, after releasing the claim, if the step is to be retried. Any other failure fails
        the run, at once or after its last attempt.
        """
        registry = self.work.registry
        try:
            if not registry.claim_final(run, self.work.fence):
                return None
            crash_point("final.claimed")
            with self._trying("final", run):
                return self._publish(registry.get_run(run))
        except _RUN_IS_OVER:
            _log.info("run %s is over; its answers are not published", run, extra={"run": run})
        except StaleEpoch as error:
            _log.warning("run %s is finished by another pipeline: %s", run, error, extra={"run": run})
        except Unavailable:
            registry.release_claim(run, self.work.fence)
            raise
        except AttemptFailed:
            self._fail_after_last_attempt(run)
            raise
        except KopitiamError as error:
            if not self.work.is_closing:
                self._fail_if_storage_works(run, str(error))
        except Exception:
            if not self.work.is_closing:
                self._fail_after_last_attempt(run)
            raise
        return None

    def provide(self, run: str) -> None:
        """Publishes provisional answers from the partials so far, under a new attempt."""
        if not self.work.registry.get_run(run).state.is_over:
            with self._trying("provisional", run):
                self._provide(run)

    @contextlib.contextmanager
    def _trying(self, step: Step, run: str) -> Iterator[None]:
        """Raises RunFailed if no attempt is left. After a failed attempt, nothing else runs beside this
        one."""
        attempts = self.work.attempts
        given_up, suspects = attempts.verdicts(step, [run])
        if run in given_up:
            raise RunFailed(given_up[run])
        with attempts.trying(step, [run], alone=bool(suspects)) as attempt:
            yield
        attempts.done(attempt)  # publishing has removed it from the registry

    def _fail_after_last_attempt(self, run: str) -> None:
        """Fails the run now, rather than before the next attempt."""
        given_up, _ = self.work.attempts.verdicts("final", [run])
        if run in given_up:
            self._fail_if_storage_works(run, given_up[run])

    def _provide(self, run: str) -> None:
        registry = self.work.registry
        account = registry.run_account(run)
        if account.figures.run.state.is_over:
            return None
        storage, folder = self.work.storage, KEYS.provisional(run, uuid.uuid4().hex)
        coverage = Coverage.of(account.processed, account.figures.tables)
        latest = registry.provisional(run)
        if latest is not None and latest.figures == json.loads(json.dumps(asdict(coverage))):
            return None  # nothing was processed since the last provisional answers
        try:
            with self._writing(folder):
                self._write(account, folder, Stopwatch(), coverage)
        except RunFailed:
            if registry.partials(run) == list(account.partials):
                raise
            return self._provide(run)  # its partials have been merged meanwhile
        before = registry.provisional(run)
        if not registry.publish_provisional(run, folder.name.partition("=")[2], asdict(coverage)):
            storage.remove(folder)
            return None
        kept = {folder, before and KEYS.provisional(run, before.attempt)}  # clients may be reading it
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
        self.work.health.record_progress()
        with watch.lap("clean up"):
            try:
                self.clean_up(run.run, attempt)
            except Unavailable as error:  # the answers are published; a gateway cleans up later
                _log.warning("run %s is not cleaned up yet: %s", run.run, error, extra={"run": run.run})
        _log.info("run %s answered", run.run, extra={"run": run.run, "seconds": watch.seconds})
        return sum(written.summary.answers.values())

    def _is_published(self, run: str, attempt: str) -> bool:
        """Whether a commit whose connection broke took effect. The claim is released first, so that it cannot
        take effect later.

        Raises Unavailable if the registry does not answer: then the next attempt or a gateway removes the
        files.
        """
        self.work.registry.release_claim(run, self.work.fence)
        published = self.work.registry.results(run)
        return published is not None and published.attempt == attempt

    @contextlib.contextmanager
    def _writing(self, folder: Key) -> Iterator[None]:
        """Removes the folder after a failure. Raises Unavailable if it could not be written, as on a full
        disk: the run is not the cause."""
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
        question_set = QuestionSet.of_run(run.questions)
        with self._material(account, question_set) as (material, scratch):
            answered = self._answer(material, scratch, watch)
            answers = answered.answers
            summary = RunSummary(
                question_set,
                {name: RowCount(state.rows, state.rejected) for name, state in figures.tables.items()},
                answers.unmatched(),
                {question.name: answers.rows(question.name) for question in question_set.questions},
                self.work.registry.now() - run.created_at,
                coverage,
                self._fingerprint(run.run, question_set) if coverage is None else None,
                run.data,
            )
            with watch.lap("forms"), self.work.storage.new_folder(target, scratch) as out:
                write_answers(out, answers, summary)
                digests = {file.name: file_digest(file) for file in out.iterdir()} if coverage is None else {}
        flows = {stage: asdict(flow) for stage, flow in answered.flows.items()}
        return Written(summary, digests, flows)

    def _answer(self, material: Material, scratch: Path, watch: Stopwatch) -> Answered:
        """As `answer`. On a cluster a job may fail because of a machine: then the attempt has failed, not the
        run."""
        try:
            return answer(self.work.spark, material, scratch, watch)
        except RunFailed as failure:
            is_over = self.work.is_closing or self.work.registry.get_run(material.run).state.is_over
            if self.work.executors is None or is_over:
                raise
            self.work.check_storage()
            raise JobFailed(str(failure)) from failure

    def _fingerprint(self, run: str, question_set: QuestionSet) -> str:
        """Computed before the answers are published, since publishing deletes the chunks."""
        return fingerprint(
            chunk for table in question_set.tables for chunk in self.work.registry.table_chunks(run, table)
        )

    @contextlib.contextmanager
    def _material(self, account: RunAccount, question_set: QuestionSet) -> Iterator[tuple[Material, Path]]:
        """The input of the answers, and a scratch folder. The folder and sorted files are removed after the
        block."""
        run = account.figures.run.run
        _require_own_kinds(account.partials, question_set)
        storage, registry = self.work.storage, self.work.registry
        joined = dict.fromkeys(table for question in question_set.questions for table in question.looked_up)
        chunks = {table: registry.table_chunks(run, table) for table in joined}
        files = {table: [self._sound(run, chunk) for chunk in chunks[table]] for table in joined}
        counted = self._counted_files(account.partials)
        partials = {partial: counted[partial.path] for partial in account.partials}
        sizes = {
            table: table_size(
                storage, question_set.tables[table], files[table], sum(chunk.rows for chunk in chunks[table])
            )
            for table in joined
        }
        sorting = KEYS.sorting(run, uuid.uuid4().hex)
        material = Material(run, question_set, partials, files, sizes, storage, sorting)
        with tempfile.TemporaryDirectory(prefix=f"run-{run}-", dir=self.scratch) as folder:
            scratch = Path(folder)
            try:
                yield material, scratch
            finally:
                storage.workspace(scratch).remove(material.sorting)

    def _counted_files(self, partials: Sequence[Partial]) -> dict[str, Footers]:
        """As `stored_footers`. Kept partials that differ from what was committed are discarded: the run
        fails, and the next one computes them again."""
        kept = [partial for partial in partials if partial.kept_as is not None]
        try:
            files = stored_footers(self.work.storage, kept)
        except PartialsDiffer as error:
            self.work.check_storage()
            self.work.registry.discard_partials(partial.path for partial in kept)
            raise RunFailed(f"{error}; what was kept of the data set is discarded: ask again") from error
        own = [partial for partial in partials if partial.kept_as is None]
        return files | stored_footers(self.work.storage, own)

    def _sound(self, run: str, chunk: ChunkRecord) -> Key:
        """Checks the chunk again: its batch may be long ago. Raises RunFailed if the file is damaged."""
        key = chunk_key(self.work.storage, run, chunk)
        inspection = inspect(self.work.storage, key, chunk.rows, chunk.landed)
        if inspection.flaw is not None:
            raise RunFailed(f"{chunk.table} chunk {chunk.number} {inspection.flaw}")
        return key

    def _fail_if_storage_works(self, run: str, reason: str) -> None:
        """Raises Unavailable if the storage is down or full, after releasing the claim: the step is
        retried."""
        try:
            self.work.check_storage()
        except Unavailable:
            self.work.registry.release_claim(run, self.work.fence)
            raise
        self.work.fail(run, reason)

    def clean_up(self, run: str, published: Key) -> None:
        """Removes all files of the run except its answers, including those of crashed attempts. What is kept
        for later runs is not among its partials any more."""
        remove_material(self.work.storage, run, published)
        remove_partials(self.work.storage, self.work.registry.partials(run))
        crash_point("cleanup.files")
        self.work.registry.delete_chunks(run)
        crash_point("cleanup.done")


def _require_own_kinds(partials: Iterable[Partial], question_set: QuestionSet) -> None:
    """Raises RunFailed for partials of another version: no question would read them, and rows would be
    lost."""
    known = {plan.name for plan in question_set.partials}
    if foreign := sorted({partial.kind for partial in partials} - known):
        raise RunFailed(
            f"its partial results ({', '.join(foreign)}) are of another version: send the data again"
        )
