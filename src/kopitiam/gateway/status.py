"""A run as the world sees it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus
from kopitiam.contracts.errors import RunFailed
from kopitiam.contracts.public_text import without_paths
from kopitiam.contracts.stages import RowFlow, Volume, total_by_shard
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.port import RegistryPort, RunAccount


def run_status(registry: RegistryPort, run: str) -> RunStatus:
    account = registry.account(run)
    found = account.figures.run
    try:
        asked = QuestionSet.of_run(found.questions)
    except RunFailed as error:
        return _unreadable(account, str(error))
    answered: dict[str, Any] = account.published.figures if account.published else {}
    unmatched = answered.get("unmatched")
    return RunStatus(
        run=found.run,
        label=found.label,
        state=found.state.value,
        questions=asked.to_request(),
        created_at=found.created_at,
        finished_at=found.finished_at,
        tables=_tables(account, asked),
        stages=_before_barrier(account, asked) | _behind_barrier(asked, answered),
        rejected=account.figures.rejected,
        unmatched=None if unmatched is None else sum(unmatched.values()),
        unmatched_by_table=unmatched,
        answers=answered.get("answers"),
        error=None if found.error is None else without_paths(found.error),
    )


def _unreadable(account: RunAccount, reason: str) -> RunStatus:
    """A run of another version, whose questions this one cannot read. Other runs are not affected."""
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
    )


def _tables(account: RunAccount, asked: QuestionSet) -> dict[str, TableStatus]:
    return {
        name: TableStatus(
            **asdict(state),
            columns=[column.name for column in asked.tables[name].columns],
            processed=sum(volume.chunks for volume in account.processed.get(name, {}).values()),
        )
        for name, state in account.figures.tables.items()
    }


def _before_barrier(account: RunAccount, asked: QuestionSet) -> dict[str, dict[str, StageStatus]]:
    """By stage and shard: chunks expected and processed, rows that came in and rows that went on."""
    stages: dict[str, dict[str, StageStatus]] = {}
    for stage in asked.stages.before_barrier:
        tables = asked.stages.tables_of(stage)
        is_ended = all(table in account.expected for table in tables)
        expected = total_by_shard(account.expected, tables) if is_ended else None
        processed, flows = total_by_shard(account.processed, tables), account.flows.get(stage, {})
        stages[stage] = {}
        for shard in range(account.figures.run.shards):
            flow = flows.get(shard, RowFlow())
            stages[stage][str(shard)] = StageStatus(
                role=asked.stages.roles[stage],
                expected=None if expected is None else expected.get(shard, Volume()).chunks,
                processed=processed.get(shard, Volume()).chunks,
                rows=flow.rows_in,
                rows_out=flow.rows_out,
            )
    return stages


def _behind_barrier(asked: QuestionSet, answered: Mapping[str, Any]) -> dict[str, dict[str, StageStatus]]:
    """Behind the barrier a stage works once for a run."""
    flows = answered.get("stages") or {}
    return {
        stage: {
            "0": StageStatus(
                role=asked.stages.roles[stage],
                expected=1,
                processed=1 if answered else 0,
                rows=flows.get(stage, {}).get("rows_in", 0),
                rows_out=flows.get(stage, {}).get("rows_out", 0),
            )
        }
        for stage in asked.stages.behind_barrier
    }
