"""A run as the world sees it."""

from dataclasses import asdict
from typing import Any

from kopitiam.contracts.api import RunStatus, StageStatus, TableStatus
from kopitiam.contracts.public_text import without_paths
from kopitiam.contracts.stages import (
    BEFORE_BARRIER,
    BEHIND_BARRIER,
    Volume,
    expected_by_stage,
    processed_by_stage,
)
from kopitiam.contracts.tables import TABLES
from kopitiam.registry.port import RegistryPort, RunAccount

# The answers that a stage behind the barrier has a part in.
_ANSWERS_OF_STAGE = {
    "max_products": ("2_1", "2_2"),
    "sum_tpv": ("3",),
    "top_customers": ("4",),
    "server_results": ("1", "2_1", "2_2", "3", "4"),
}


def run_status(registry: RegistryPort, run: str) -> RunStatus:
    account = registry.account(run)
    figures = account.figures
    answered: dict[str, Any] = account.published.figures if account.published else {}
    unmatched = answered.get("unmatched")
    found = figures.run
    return RunStatus(
        run=found.run,
        label=found.label,
        state=found.state.value,
        questions=found.questions,
        created_at=found.created_at,
        finished_at=found.finished_at,
        tables={name: TableStatus(**asdict(figures.tables[name])) for name in TABLES},
        stages=_stages(account),
        rejected=figures.rejected,
        unmatched=None if unmatched is None else sum(unmatched.values()),
        unmatched_by_table=unmatched,
        answers=answered.get("answers"),
        error=None if found.error is None else without_paths(found.error),
    )


def _stages(account: RunAccount) -> dict[str, dict[str, StageStatus]]:
    """By stage and shard: chunks expected and processed, and their rows. Behind the barrier, one each."""
    expected, processed = expected_by_stage(account.expected), processed_by_stage(account.processed)
    shards = range(account.figures.run.shards)
    stages = {
        stage: {
            str(shard): _stage(expected.get(stage, {}).get(shard), processed[stage].get(shard, Volume()))
            for shard in shards
        }
        for stage in BEFORE_BARRIER
    }
    answers = account.published.figures.get("answers", {}) if account.published else {}
    for stage in BEHIND_BARRIER:
        rows = sum(answers.get(answer, 0) for answer in _ANSWERS_OF_STAGE[stage])
        stages[stage] = {"0": StageStatus(expected=1, processed=1 if answers else 0, rows=rows)}
    return stages


def _stage(expected: Volume | None, processed: Volume) -> StageStatus:
    return StageStatus(
        expected=expected.chunks if expected else None, processed=processed.chunks, rows=processed.rows
    )
