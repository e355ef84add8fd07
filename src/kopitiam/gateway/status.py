"""A run as the world sees it."""

from dataclasses import asdict

from kopitiam.contracts.api import RunStatus, TableStatus
from kopitiam.contracts.tables import TABLES
from kopitiam.registry.port import RegistryPort


def run_status(registry: RegistryPort, run: str) -> RunStatus:
    figures = registry.figures(run)
    published = registry.results(run)
    answered = published.figures if published else {}
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
        stages={},
        rejected=figures.rejected,
        unmatched=None if unmatched is None else sum(unmatched.values()),
        unmatched_by_table=unmatched,
        answers=answered.get("answers"),
        error=found.error,
    )
