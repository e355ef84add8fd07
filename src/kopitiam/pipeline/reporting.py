"""Reports of a pipeline: the progress of each shard and stage to the barrier, in absolute figures, and the
seconds of its steps to the log.
"""

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopitiam.bus.outbox import Outbox
from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import RunFailed, RunNotFound, Unavailable
from kopitiam.contracts.messages import WorkerEnd, WorkerStats, progress_topic
from kopitiam.contracts.progress import RowFlow, Volume, total_by_shard
from kopitiam.questions.plans import SERVER_RESULTS
from kopitiam.questions.question_set import QuestionSet
from kopitiam.system.crash_points import crash_point

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """A report about a run: progress of the stages that these tables feed, in these shards, or the rows of
    its answers once they are published."""

    tables: frozenset[str] = frozenset()
    shards: frozenset[int] = frozenset()
    answer_rows: int | None = None

    def __or__(self, other: "Report") -> "Report":
        answer_rows = self.answer_rows if other.answer_rows is None else other.answer_rows
        return Report(self.tables | other.tables, self.shards | other.shards, answer_rows)


class Reports:
    """Publishes reports from a thread of its own, so that an unavailable bus delays no batch. Figures are
    read from the registry just before, so that several reports about a run become one."""

    def __init__(self, bus: BusPort, registry: "Registry") -> None:
        self._bus = bus
        self._registry = registry
        self._outbox = Outbox[str, Report]("reports", self._send, merge=lambda old, new: old | new)

    def progress(self, run: str, tables: Iterable[str], shards: Iterable[int]) -> None:
        self._outbox.put(run, Report(frozenset(tables), frozenset(shards)))

    def answers(self, run: str, rows: int) -> None:
        self._outbox.put(run, Report(answer_rows=rows))

    def close(self) -> None:
        self._outbox.close()

    def _send(self, run: str, due: Report) -> None:
        if due.answer_rows is not None:  # the run is done: its progress need not be reported
            report_answers(self._bus, run, due.answer_rows)
            crash_point("results.announced")
        else:
            report(self._bus, self._registry, run, sorted(due.tables), sorted(due.shards))


def report(
    bus: BusPort, registry: "Registry", run: str, tables: Iterable[str], shards: Iterable[int]
) -> None:
    """Publishes the progress of the stages that these tables feed. Reconciliation recovers lost messages."""
    try:
        account = registry.run_account(run)
        stages = QuestionSet.of_run(account.figures.run.questions).stages
        for stage in dict.fromkeys(stage for table in tables for stage in stages.of_table.get(table, ())):
            fed_by = stages.tables_of(stage)
            is_ended = all(table in account.expected for table in fed_by)
            expected = total_by_shard(account.expected, fed_by) if is_ended else {}
            processed = total_by_shard(account.processed, fed_by)
            for shard in shards:
                if shard < account.figures.run.shards:
                    done = processed.get(shard, Volume()).chunks
                    rows = account.flows.get(stage, {}).get(shard, RowFlow()).rows_in
                    for message in _messages(run, stage, shard, expected.get(shard), done, rows):
                        bus.publish(progress_topic(stage, shard), message)
    except (RunNotFound, RunFailed):
        return
    except Unavailable as error:
        _log.warning("run %s: progress is not reported: %s", run, error, extra={"run": run})


def report_answers(bus: BusPort, run: str, rows: int) -> None:
    """Publishes the end of the last stage, publishing the answers, to gateways and through them to
    clients."""
    try:
        bus.publish(
            progress_topic(SERVER_RESULTS, 0),
            WorkerEnd(run=run, stage=SERVER_RESULTS, shard=0, processed=1, rows=rows),
        )
    except Unavailable as error:
        _log.warning("run %s: its end is not reported: %s", run, error, extra={"run": run})


def _messages(  # noqa: PLR0917 - the fields of the messages
    run: str, stage: str, shard: int, expected: Volume | None, processed: int, rows: int
) -> Iterator[WorkerStats | WorkerEnd]:
    chunks = expected.chunks if expected else None
    yield WorkerStats(run=run, stage=stage, shard=shard, expected=chunks, processed=processed, rows=rows)
    if processed == chunks:
        yield WorkerEnd(run=run, stage=stage, shard=shard, processed=processed, rows=rows)


class Stopwatch:
    """Measures the steps of a batch or a final step. Laps may overlap and repeat: their seconds add up."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def lap(self, step: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step] += time.perf_counter() - begun

    @property
    def seconds(self) -> dict[str, float]:
        return {step: round(seconds, 4) for step, seconds in self._seconds.items()}
