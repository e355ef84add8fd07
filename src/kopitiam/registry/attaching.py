"""Gives a run over a data set its work, and seals it: for each file of the version either the partials that
an earlier run has kept, with their counts, or entries in the chunk log.

Tables that only the final step reads are used by reference; the final step checks their files. Referenced
chunks and rows are added to expectations and progress alike, so that the rule of the barrier stays the same.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text, update

from kopitiam.contracts.batches import Processed, StageRows, lane_at
from kopitiam.contracts.data_sets import DataFile, DataUse
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import Run, RunState
from kopitiam.questions.plans import ALL_ROWS, Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.questions.row_counts import RowCounts
from kopitiam.registry.batches import count_processed, count_stages
from kopitiam.registry.data_files import log_row, recorded_chunks
from kopitiam.registry.data_schema import data_chunks, kept_partials, kept_plans, run_files, used_partials
from kopitiam.registry.runs import move_run, touch
from kopitiam.registry.schema import chunks, run_tables, shard_expectations

TAKE_SEQUENCES = text("""
    INSERT INTO shard_counters (lane, last) VALUES (:lane, :count)
    ON CONFLICT (lane) DO UPDATE SET last = shard_counters.last + :count
    RETURNING last
""")
ByShard = Mapping[int, Volume]


def attach(connection: Connection, run: Run, files: Iterable[DataFile], use: DataUse, now: float) -> None:
    """Seal the run over these files of its data set, which the caller has locked."""
    question_set = QuestionSet.of_run(run.questions)
    needed = [file for file in files if file.table in question_set.tables]
    connection.execute(delete(run_files).where(run_files.c.run == run.run))
    connection.execute(insert(run_files), [{"run": run.run, "file": file.file} for file in needed])
    work = _Attachment(run, question_set, needed, _volumes(connection, run))
    work.use_kept_partials(connection, now)
    work.log_others(connection)
    work.count(connection)
    touch(connection, run.run, data=json.dumps(use.to_dict()))
    move_run(connection, run.run, RunState.SEALED, now)


def _volumes(connection: Connection, run: Run) -> dict[str, ByShard]:
    """Chunks and rows of each file by shard. A run may have fewer shards than the file was stored with."""
    columns = data_chunks.c
    query = (
        select(columns.file, columns.shard, func.count(), func.sum(columns.rows))
        .join_from(data_chunks, run_files, run_files.c.file == columns.file)
        .where(run_files.c.run == run.run)
        .group_by(columns.file, columns.shard)
    )
    volumes: dict[str, dict[int, Volume]] = defaultdict(lambda: defaultdict(Volume))
    for file, shard, count, rows in connection.execute(query):
        volumes[file][shard % run.shards] += Volume(count, int(rows))
    return dict(volumes)


@dataclass
class _Attachment:
    """The work of one run, while it is attached."""

    run: Run
    question_set: QuestionSet
    files: list[DataFile]
    volumes: Mapping[str, ByShard]
    counts: RowCounts = field(default_factory=RowCounts)
    reused: set[str] = field(default_factory=set)  # facts whose partials are kept

    @cached_property
    def plans(self) -> dict[str, dict[str, PartialPlan]]:
        """The plans of each fact, by key."""
        plans: dict[str, dict[str, PartialPlan]] = defaultdict(dict)
        for plan in self.question_set.partials:
            plans[plan.fact][plan.key(self.question_set.parameters)] = plan
        return dict(plans)

    def is_sent(self, file: DataFile) -> bool:
        """Whether this run has sent the file: then its chunks are in the log already."""
        return file.run == self.run.run

    def is_referenced(self, file: DataFile) -> bool:
        return not self.is_sent(file) and (file.table not in self.plans or file.file in self.reused)

    def use_kept_partials(self, connection: Connection, now: float) -> None:
        """Use the kept partials of every file that has them for all plans of its table."""
        kept = self._kept_counts(connection)
        used: list[dict[str, Any]] = []
        for fact, plans in self.plans.items():
            files = {file.file for file in self.files if file.table == fact and not self.is_sent(file)}
            reused = {file for file in files if all((file, key) in kept for key in plans)}
            self.reused |= reused
            for file in reused:
                self._add_counts(fact, {plan: kept[file, key] for key, plan in plans.items()})
            used += self._paths(connection, reused, plans)
            is_used = kept_plans.c.file.in_(reused) & kept_plans.c.plan.in_(plans)
            connection.execute(update(kept_plans).where(is_used).values(used_at=now))
        if used:
            connection.execute(insert(used_partials), used)

    def _kept_counts(self, connection: Connection) -> dict[tuple[str, str], list[dict[str, int]]]:
        query = (
            select(kept_plans.c.file, kept_plans.c.plan, kept_plans.c.counts)
            .join_from(kept_plans, run_files, run_files.c.file == kept_plans.c.file)
            .where(run_files.c.run == self.run.run, kept_plans.c.is_removed.is_(False))
        )
        return {(row.file, row.plan): json.loads(row.counts) for row in connection.execute(query)}

    def _add_counts(self, fact: str, kept: Mapping[PartialPlan, list[dict[str, int]]]) -> None:
        """Add the rows of a file. Plans that share conditions have counted the same rows."""
        meeting: dict[Conditions, dict[str, int]] = {}
        for plan, (kept_rows, *behind) in kept.items():
            for shard, rows in kept_rows.items():
                self.counts.add_kept(plan.name, int(shard) % self.run.shards, rows)
            meeting |= dict(zip(plan.conditions_after, behind, strict=True))
        for conditions, by_shard in meeting.items():
            for shard, rows in by_shard.items():
                self.counts.add_rows(fact, conditions, int(shard) % self.run.shards, rows)

    def _paths(
        self, connection: Connection, files: Collection[str], plans: Mapping[str, PartialPlan]
    ) -> Iterable[dict[str, Any]]:
        is_reused = kept_partials.c.file.in_(files) & kept_partials.c.plan.in_(plans)
        for row in connection.execute(select(kept_partials).where(is_reused)):
            names = {"run": self.run.run, "path": row.path, "kind": plans[row.plan].name}
            yield {**names, "rows": row.rows, "origin": row.file}

    def log_others(self, connection: Connection) -> None:
        """Put the chunks of facts without kept partials into the log, behind those that the run has sent."""
        columns = run_tables.c
        query = select(columns.table_name, columns.chunks).where(columns.run == self.run.run)
        numbers = Counter({row.table_name: row.chunks for row in connection.execute(query)})
        entries = []
        for file in self.files:
            if self.is_sent(file) or self.is_referenced(file):
                continue
            for chunk in recorded_chunks(connection, file.file):
                shard = chunk.shard % self.run.shards
                entries.append(
                    (replace(chunk, lane=lane_at(shard, numbers[file.table])), numbers[file.table])
                )
                numbers[file.table] += 1
        lengths = Counter(chunk.lane for chunk, _ in entries)
        ends = {
            lane: connection.execute(TAKE_SEQUENCES, {"lane": lane, "count": lengths[lane]}).scalar_one()
            for lane in sorted(lengths)  # in one order, so that two transactions cannot deadlock
        }
        following = {lane: end - lengths[lane] for lane, end in ends.items()}
        rows = []
        for chunk, number in entries:
            following[chunk.lane] += 1
            rows.append(log_row(self.run.run, replace(chunk, sequence=following[chunk.lane]), number))
        if rows:
            connection.execute(insert(chunks), rows)

    def count(self, connection: Connection) -> None:
        """Store the totals and expectations of every table, and the progress of referenced files."""
        run, expected = self.run, self._by_shard(self.files)
        referenced = [file for file in self.files if self.is_referenced(file)]
        for file in referenced:
            for shard, volume in self.volumes.get(file.file, {}).items():
                self.counts.add_rows(file.table, ALL_ROWS, shard, volume.rows)
        progress = [
            Processed(run.run, table, shard, volume.chunks, volume.rows)
            for (table, shard), volume in self._by_shard(referenced).items()
        ]
        flows = self.counts.flows(self.question_set).items()
        count_processed(connection, progress)
        count_stages(
            connection,
            [StageRows(run.run, stage, shard, f.rows_in, f.rows_out) for (stage, shard), f in flows],
        )
        rows = [
            {
                "run": run.run,
                "table_name": table,
                "shard": shard,
                "chunks": expected[table, shard].chunks,
                "rows": expected[table, shard].rows,
            }
            for table in self.question_set.tables
            for shard in range(run.shards)
        ]
        connection.execute(insert(shard_expectations), rows)
        for table in self.question_set.tables:
            self._store_totals(connection, table)

    def _by_shard(self, files: Iterable[DataFile]) -> defaultdict[tuple[str, int], Volume]:
        volumes: defaultdict[tuple[str, int], Volume] = defaultdict(Volume)
        for file in files:
            for shard, volume in self.volumes.get(file.file, {}).items():
                volumes[file.table, shard] += volume
        return volumes

    def _store_totals(self, connection: Connection, table: str) -> None:
        of_table = [file for file in self.files if file.table == table]
        count, rows = sum(file.chunks for file in of_table), sum(file.rows for file in of_table)
        totals = {"chunks": count, "rows": rows, "expected_chunks": count, "expected_rows": rows}
        storing = update(run_tables).where(run_tables.c.run == self.run.run, run_tables.c.table_name == table)
        rejected = sum(file.rejected for file in of_table)
        connection.execute(storing.values(**totals, rejected=rejected, sealed=True))
