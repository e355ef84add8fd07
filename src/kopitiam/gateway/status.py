"""The status of a run, as the API shows it: tables, stages, counts and error."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus
from kopitiam.contracts.data_api import DataChanges, DataStatus
from kopitiam.contracts.errors import RunFailed
from kopitiam.contracts.progress import RowFlow, Volume, total_by_shard
from kopitiam.contracts.runs import Run
from kopitiam.gateway.problems import without_paths
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import RunAccount

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry


def run_status(registry: "Registry", run: str) -> RunStatus:
    """Return the status of a run. Raises RunNotFound."""
    account = registry.run_account(run)
    record = account.figures.run
    try:
        questions = QuestionSet.of_run(record.questions)
    except RunFailed as error:
        return _unreadable(account, str(error))
    figures: dict[str, Any] = account.published.figures if account.published else {}
    unmatched = figures.get("unmatched")
    return RunStatus(
        run=record.run,
        label=record.label,
        state=record.state.value,
        questions=questions.to_request(),
        created_at=record.created_at,
        finished_at=record.finished_at,
        tables=_tables(account, questions),
        stages=_before_barrier(account, questions) | _behind_barrier(questions, figures),
        rejected=account.figures.rejected,
        unmatched=None if unmatched is None else sum(unmatched.values()),
        unmatched_by_table=unmatched,
        answers=figures.get("answers"),
        error=None if record.error is None else without_paths(record.error),
        data=_data(record),
    )


def _unreadable(account: RunAccount, reason: str) -> RunStatus:
    """Return the status of a run whose questions this version cannot read. Other runs are not affected."""
    run = account.figures.run
    return RunStatus(
        run=run.run,
        label=run.label,
        state=run.state.value,
        questions={},
        created_at=run.created_at,
        finished_at=run.finished_at,
        tables={},
        stages={},
        rejected=account.figures.rejected,
        unmatched=None,
        unmatched_by_table=None,
        answers=None,
        error=without_paths(run.error or reason),
        data=_data(run),
    )


def _data(run: Run) -> DataStatus | None:
    if run.data is None:
        return None
    use = run.data
    return DataStatus(
        name=use.name,
        upload=use.is_upload,
        seen=use.seen,
        version=use.version,
        changes=DataChanges(**asdict(use.changes)) if use.changes else None,
    )


def _tables(account: RunAccount, questions: QuestionSet) -> dict[str, TableStatus]:
    return {
        name: TableStatus(
            **asdict(state),
            columns=[column.name for column in questions.tables[name].columns],
            processed=sum(volume.chunks for volume in account.processed.get(name, {}).values()),
        )
        for name, state in account.figures.tables.items()
    }


def _before_barrier(account: RunAccount, questions: QuestionSet) -> dict[str, dict[str, StageStatus]]:
    """Return by stage and shard: chunks expected and processed, rows in and out."""
    stages: dict[str, dict[str, StageStatus]] = {}
    for stage in questions.stages.before_barrier:
        tables = questions.stages.tables_of(stage)
        is_ended = all(table in account.expected for table in tables)
        expected = total_by_shard(account.expected, tables) if is_ended else None
        processed, flows = total_by_shard(account.processed, tables), account.flows.get(stage, {})
        stages[stage] = {}
        for shard in range(account.figures.run.shards):
            flow = flows.get(shard, RowFlow())
            stages[stage][str(shard)] = StageStatus(
                role=questions.stages.roles[stage],
                expected=None if expected is None else expected.get(shard, Volume()).chunks,
                processed=processed.get(shard, Volume()).chunks,
                rows=flow.rows_in,
                rows_out=flow.rows_out,
            )
    return stages


def _behind_barrier(questions: QuestionSet, figures: Mapping[str, Any]) -> dict[str, dict[str, StageStatus]]:
    """Return the stages behind the barrier, each of which runs once for a run."""
    flows = figures.get("stages") or {}
    return {
        stage: {
            "0": StageStatus(
                role=questions.stages.roles[stage],
                expected=1,
                processed=1 if figures else 0,
                rows=flows.get(stage, {}).get("rows_in", 0),
                rows_out=flows.get(stage, {}).get("rows_out", 0),
            )
        }
        for stage in questions.stages.behind_barrier
    }
