"""Prepared runs, written without a pipeline: a thousand ended ones, a long answer, a failed one."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from catalog_tables import TABLES
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeRecord
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry import Registry
from kopitiam.registry.registry import connect_registry
from kopitiam.results.summary import RowCount, RunSummary
from made_answers import MadeAnswers

OWNER = "anna"
_RUN = """
INSERT INTO runs (run, label, state, questions, owner, shards, created_at, lease_seconds, lease_expires_at,
                  finished_at, error, version)
VALUES (:run, :label, 'ended', :questions, :owner, 1, :at, 60, :at, :at, 'cancelled', 2)
"""
_TABLE = "INSERT INTO run_tables (run, table_name, chunks, rows, rejected) VALUES (:run, :name, 0, 0, 0)"


def write_ended_runs(home: Path, count: int) -> None:
    """Write ended runs, older than all others, in one transaction, as the registry would."""
    began = time.time() - 20 * 3600
    asked = json.dumps(Parameters().to_dict())
    runs = [
        {"run": f"{n:024x}", "label": f"old run {n}", "questions": asked, "owner": OWNER, "at": began + n}
        for n in range(count)
    ]
    tables = [{"run": run["run"], "name": table} for run in runs for table in TABLES]
    with contextlib.closing(sqlite3.connect(home / "registry.sqlite", timeout=30)) as database, database:
        database.executemany(_RUN, runs)
        database.executemany(_TABLE, tables)


def write_failed_run(home: Path, label: str, error: str) -> str:
    with contextlib.closing(connect_registry("sqlite", home)) as registry:
        run = _opened(registry, label, QuestionSet.of_catalog())
        registry.move(run, RunState.FAILED, error)
    return run


def write_long_run(home: Path, label: str, rows: int) -> str:
    """Write a run that is done, with this many rows in its first answer and none in the others."""
    made = MadeAnswers()

    def write(folder: Path) -> None:
        made.write(folder)
        ids, amounts = zip(*map(sale, range(rows)), strict=True)
        schema = made.schema("1")
        sales = pa.table([pa.array(ids), pa.array(amounts, schema.types[1])], schema)
        pq.write_table(
            sales, folder / made.question_set.by_name["1"].file_name("parquet"), row_group_size=65_536
        )

    counts = dict.fromkeys(made.question_set.by_name, 0) | {"1": rows}
    return _write_done(home, label, made.question_set, counts, write)


def write_done_run(home: Path, label: str, made: MadeAnswers, owner: str = OWNER) -> str:
    counts = {name: made.rows(name) for name in made.question_set.by_name}
    return _write_done(home, label, made.question_set, counts, made.write, owner=owner)


def _write_done(
    home: Path,
    label: str,
    asked: QuestionSet,
    counts: dict[str, int],
    write: Callable[[Path], object],
    *,
    owner: str = OWNER,
) -> str:
    unmatched = dict.fromkeys((table for question in asked.questions for table in question.looked_up), 0)
    summary = RunSummary(asked, {name: RowCount(0, 0) for name in asked.tables}, unmatched, counts, 1.0)
    attempt = new_run_id()
    with contextlib.closing(connect_registry("sqlite", home)) as registry:
        run = _opened(registry, label, asked, owner)
        folder = Home(home).attempt(run, attempt)
        write(folder)
        (folder / "summary.json").write_text(json.dumps(summary.to_dict()))
        for state in (RunState.SEALED, RunState.FINAL):
            registry.move(run, state)
        registry.publish_results(run, attempt, {"answers": counts, "unmatched": unmatched})
    return run


def sale(number: int) -> tuple[str, Decimal]:
    return f"sale-{number:06d}", Decimal(750_000 + 7 * number) / 10_000


def shelve_nodes(home: Path, *nodes: NodeRecord) -> None:
    with contextlib.closing(connect_registry("sqlite", home)) as registry:
        for node in nodes:
            registry.report_node(node)


def _opened(registry: Registry, label: str, asked: QuestionSet, owner: str = OWNER) -> str:
    return registry.open_run(
        asked.to_dict(), label, owner, idempotency_key=None, lease_seconds=600, shards=1
    ).run.run
