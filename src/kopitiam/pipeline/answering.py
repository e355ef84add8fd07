"""Answers from partials: one small Spark job or two for each question, all questions at once.

Each job waits more than it works, so the questions of a run share a few threads.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.progress import RowFlow
from kopitiam.pipeline import partials
from kopitiam.pipeline.compiler.answers import (
    AnswerPlan,
    finished,
    in_order,
    listed,
    merged_groups,
    ranked_groups,
    unknown_ids,
)
from kopitiam.pipeline.partials import count_rows
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.tables import BROADCAST_ROWS, TableSize, can_be_collected, read_table
from kopitiam.questions.definitions import Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.plans import SERVER_RESULTS
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import ComputedAnswer, ComputedAnswers, distinct
from kopitiam.spark.jobs import SPARK_ERRORS, failure_of, parallel_tasks, tagged_jobs
from kopitiam.storage.port import Key, StoragePort

T = TypeVar("T")
Stage = Callable[[DataFrame], DataFrame]
SCHEDULER_POOL = "answers"
_THREADS = 4
_MANY_ROWS = 100_000  # of partials: then a task for each core merges them, without a shuffle
_MOST_IDS_IN_FILTER = 1_000


@dataclass(frozen=True)
class Material:
    """What the answers of a run are made of: the files of its partials, counted, and those of its tables."""

    run: str
    asked: QuestionSet
    partials: Mapping[Key, int]  # files, with the rows of the partial that each belongs to
    files: Mapping[str, Sequence[Key]]  # of the tables that are joined
    sizes: Mapping[str, TableSize]  # of the same tables
    storage: StoragePort
    sorting: Key  # where Spark may leave groups and sorted files for a while

    def files_of(self, plan: str) -> list[Key]:
        return [file for file in self.partials if partials.kind_of(str(file.parent)) == plan]

    def rows_of(self, plan: str) -> int:
        folders = {file.parent: rows for file, rows in self.partials.items()}
        return sum(rows for folder, rows in folders.items() if partials.kind_of(str(folder)) == plan)

    @property
    def small_tables(self) -> frozenset[str]:
        """Tables that Spark may send to every task."""
        return frozenset(table for table, size in self.sizes.items() if size.is_small)

    def can_collect(self, question: Question, rows: int) -> bool:
        """Whether an answer of that many rows fits into memory, however long its texts are."""
        return can_be_collected(question, rows, self.sizes, len(self.asked.questions))


@dataclass(frozen=True)
class Answered:
    """All answers of a run, and the rows that passed the stages behind the barrier."""

    answers: ComputedAnswers
    flows: Mapping[str, RowFlow]


@dataclass(frozen=True)
class _Answer:
    computed: ComputedAnswer
    unknown: Mapping[str, Sequence[pa.Array]]  # by table


def answer(spark: SparkSession, material: Material, scratch: Path, watch: Stopwatch) -> Answered:
    """`scratch` takes the sorted files of large answers, where they are read from."""
    asked = material.asked
    by_question = {name: plan for plan in asked.partials for name in plan.questions}
    plans = [
        AnswerPlan(question, by_question[question.name], asked.parameters, material.small_tables)
        for question in asked.questions
    ]
    plans.sort(key=lambda plan: -material.rows_of(plan.partial.name))  # the longest begins first
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="answers") as threads:
        answering = _Answering(spark, material, scratch)
        coming = {
            plan.question.name: threads.submit(_as_job_of, spark, material.run, answering, plan, watch)
            for plan in plans
        }
        try:
            found = {name: each.result() for name, each in coming.items()}
        except SPARK_ERRORS as error:
            raise failure_of(error) from error
    unknown = {
        table: distinct(ids for each in found.values() for ids in each.unknown.get(table, ()))
        for table in asked.tables
    }
    computed = {question.name: found[question.name].computed for question in asked.questions}
    return Answered(ComputedAnswers(asked, computed, unknown), _flows(material, plans, computed))


def _as_job_of(
    spark: SparkSession, run: str, answering: "_Answering", plan: AnswerPlan, watch: Stopwatch
) -> _Answer:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", SCHEDULER_POOL)
    with tagged_jobs(spark, [run]), watch.lap(f"answer {plan.question.name}"):
        return answering.answer(plan)


@dataclass(frozen=True)
class _Answering:
    spark: SparkSession
    material: Material
    scratch: Path

    def answer(self, plan: AnswerPlan) -> _Answer:
        question, material = plan.question, self.material
        frame, tables = self._partials(plan), self._tables(question)
        if question.lists_rows:
            return self._sorted(plan, frame.transform(listed(plan, tables)))
        rows = material.rows_of(plan.partial.name)
        slices = parallel_tasks(self.spark) if rows > _MANY_ROWS else 1
        groups = frame.transform(merged_groups(plan, tables, slices)).transform(ranked_groups(plan))
        unknown = self._unknown_keys(plan, frame, tables)
        if question.rank is not None and not material.can_collect(question, rows):
            groups, rows = self._written(plan, groups)  # a rank may leave few of them
        if not material.can_collect(question, rows):
            return self._sorted(plan, groups.transform(finished(plan, tables)), unknown)
        if self._looks_up_large_tables(question):
            collected = groups.toArrow()
            groups = self.spark.createDataFrame(collected)
            plan, tables = self._with_rows_of(collected, plan, tables)
        table = groups.transform(finished(plan, tables)).toArrow()
        return _Answer(ComputedAnswer(table), _joined(unknown, _unmatched(question, table)))

    def _looks_up_large_tables(self, question: Question) -> bool:
        """Whether the answer has attributes of a table that is not small. Then the groups are computed first,
        and Spark reads only the rows with their ids."""
        return any(attribute.table not in self.material.small_tables for attribute in question.attributes)

    def _with_rows_of(
        self, groups: pa.Table, plan: AnswerPlan, tables: Mapping[str, DataFrame]
    ) -> tuple[AnswerPlan, dict[str, DataFrame]]:
        """The tables with only those rows whose attributes the answer shows, and a plan that broadcasts them.

        The answer can be collected, so it has room for all these attributes, and a broadcast has too.
        """
        question = plan.question
        columns = dict(zip((key.name for key in question.keys), plan.keys, strict=True))
        few = dict(tables)
        for table in dict.fromkeys(attribute.table for attribute in question.attributes):
            shown = {columns[question.identity(each)] for each in question.attributes if each.table == table}
            ids = distinct(chunk for column in shown for chunk in groups[column].drop_null().chunks)
            if len(ids) <= BROADCAST_ROWS:
                few[table] = tables[table].transform(rows_with(self.spark, LAYOUT[table].key, ids))
                plan = replace(plan, small_tables=plan.small_tables | {table})
        return plan, few

    def _written(self, plan: AnswerPlan, groups: DataFrame) -> tuple[DataFrame, int]:
        """The same groups, written by Spark and read from there, and their number."""
        space = self.material.storage.workspace(self.scratch)
        target = self.material.sorting / f"{plan.question.name}-groups"
        groups.write.parquet(space.url(target))
        rows = count_rows(space, target)
        return self.spark.read.schema(groups.schema).parquet(space.url(target)), rows

    def _sorted(
        self, plan: AnswerPlan, frame: DataFrame, unknown: Mapping[str, Sequence[pa.Array]] | None = None
    ) -> _Answer:
        """Sorted by Spark, however large the answer is, and fetched as files."""
        question, storage = plan.question, self.material.storage
        space, target = storage.workspace(self.scratch), self.material.sorting / question.name
        folder = self.scratch / f"sorted-{question.name}"
        folder.mkdir()
        frame.transform(in_order(question)).write.parquet(space.url(target))
        files = space.fetch(f"{target}/part-*.parquet", folder)
        computed = ComputedAnswer(files=files)
        ids = dict.fromkeys(question.identity(attribute) for attribute in question.attributes)
        flags = [name for key in ids for name in (key, matched_name(key))]
        batches = computed.batches(flags) if flags else iter(())
        found = [_unmatched(question, pa.Table.from_batches([batch])) for batch in batches]
        return _Answer(computed, _joined(unknown or {}, *found))

    def _unknown_keys(
        self, plan: AnswerPlan, frame: DataFrame, tables: Mapping[str, DataFrame]
    ) -> dict[str, list[pa.Array]]:
        names = dict.fromkeys(attribute.table for attribute in plan.key_attributes)
        return {
            table: frame.transform(unknown_ids(plan, table, tables[table])).toArrow()["id"].chunks
            for table in names
        }

    def _partials(self, plan: AnswerPlan) -> DataFrame:
        storage = self.material.storage
        files = [storage.url(file) for file in self.material.files_of(plan.partial.name)]
        return partials.read(self.spark, storage.url(KEYS.partials), plan.partial, files)

    def _tables(self, question: Question) -> dict[str, DataFrame]:
        material = self.material
        return {
            table: read_table(
                self.spark,
                material.storage.url(KEYS.landing),
                material.asked.tables[table],
                [material.storage.url(key) for key in material.files[table]],
            )
            for table in question.looked_up
        }


def rows_with(spark: SparkSession, key: str, ids: pa.Array) -> Stage:
    """The rows with these ids: by a filter for a few ids, by a join for more.

    Each id of a filter costs two calls to the JVM and a literal in the plan.
    """

    def matching(rows: DataFrame) -> DataFrame:
        if len(ids) <= _MOST_IDS_IN_FILTER:
            return rows.where(f.col(key).isin(ids.to_pylist()))
        bounds = pc.min_max(ids).as_py()
        in_range = rows.where(f.col(key).between(bounds["min"], bounds["max"]))
        wanted = spark.createDataFrame(pa.table({key: ids}))
        return in_range.join(f.broadcast(wanted), on=key, how="leftsemi")

    return matching


def _unmatched(question: Question, table: pa.Table) -> dict[str, list[pa.Array]]:
    """The ids of the answer that their tables lack, each of them once."""
    unknown: dict[str, list[pa.Array]] = {}
    for attribute in question.attributes:
        key = question.identity(attribute)
        ids = table[key].filter(pc.invert(table[matched_name(key)])).drop_null()
        unknown[attribute.table] = [distinct(ids.chunks)]
    return unknown


def _joined(*found: Mapping[str, Sequence[pa.Array]]) -> dict[str, list[pa.Array]]:
    tables = dict.fromkeys(table for each in found for table in each)
    return {table: [ids for each in found for ids in each.get(table, ())] for table in tables}


def _flows(
    material: Material, plans: Sequence[AnswerPlan], computed: Mapping[str, ComputedAnswer]
) -> dict[str, RowFlow]:
    """Partial rows came into the ranking of a question, the rows of its answer went on, through its joins."""
    flows: dict[str, RowFlow] = {}
    for plan in plans:
        question = plan.question
        partial_rows, rows = material.rows_of(plan.partial.name), computed[question.name].rows
        came_and_went = [] if question.lists_rows else [(question.stages.rank, partial_rows)]
        came_and_went += [(stage, rows) for stage in question.stages.join]
        for stage, came in came_and_went:
            flows[stage] = flows.get(stage, RowFlow()) + RowFlow(came, rows)
    every = sum(each.rows for each in computed.values())
    return flows | {SERVER_RESULTS: RowFlow(every, every)}
