"""Answers from partials: one or two small Spark jobs for each question, all questions at once.

Jobs mostly wait for Spark, so the questions of a run share a few threads. The plans of these jobs are
compiled in `compiler.answers`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.progress import RowFlow
from kopitiam.pipeline import partials
from kopitiam.pipeline.compiler.answers import (
    AnswerPlan,
    Cut,
    finished,
    in_order,
    listed,
    merged_groups,
    shuffled,
    slices,
    unknown_ids,
)
from kopitiam.pipeline.compiler.bounds import joined
from kopitiam.pipeline.compiler.ranking import ranked_groups
from kopitiam.pipeline.partials import Footers, count_rows
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.tables import BROADCAST_ROWS, TableSize, can_be_collected, read_table
from kopitiam.questions.definitions import Question, matched_name
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.plans import SERVER_RESULTS, PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import ComputedAnswer, ComputedAnswers, distinct
from kopitiam.spark.jobs import SPARK_ERRORS, failure_of, size_shuffles, tagged_jobs
from kopitiam.storage.port import Key, StoragePort

Stage = Callable[[DataFrame], DataFrame]
SCHEDULER_POOL = "answers"
_THREADS = 4
_MANY_ROWS = 100_000  # of partials
_FEW_CORES = 2  # up to here, reading all partials for each core takes less time than a shuffle
_MOST_IDS_IN_FILTER = 1_000


@dataclass(frozen=True)
class Material:
    """The input of a run's answers: the files of its partials, and those of its tables."""

    run: str
    question_set: QuestionSet
    partials: Mapping[Partial, Footers]  # with the files of each
    files: Mapping[str, Sequence[Key]]  # of the tables that are joined
    sizes: Mapping[str, TableSize]  # of the same tables
    storage: StoragePort
    sorting: Key  # for Spark's temporary groups and sorted files

    def files_of(self, plan: str) -> list[Key]:
        return [file for footers in self.footers_of(plan) for file in footers.files]

    def rows_of(self, plan: str) -> int:
        return sum(partial.rows for partial in self.partials if partial.kind == plan)

    def footers_of(self, plan: str) -> list[Footers]:
        return [footers for partial, footers in self.partials.items() if partial.kind == plan]

    @property
    def small_tables(self) -> frozenset[str]:
        """Tables that Spark may send to every task."""
        return frozenset(table for table, size in self.sizes.items() if size.is_small)

    def can_collect(self, question: Question, rows: int) -> bool:
        """Whether an answer with this many rows, and the longest allowed texts, fits into memory."""
        return can_be_collected(question, rows, self.sizes, len(self.question_set.questions))


@dataclass(frozen=True)
class Answered:
    """All answers of a run, and the rows that entered and left the stages behind the barrier."""

    answers: ComputedAnswers
    flows: Mapping[str, RowFlow]


@dataclass(frozen=True)
class _Answer:
    computed: ComputedAnswer
    unknown: Mapping[str, Sequence[pa.Array]]  # ids that a table lacks, by table


def answer(spark: SparkSession, material: Material, scratch: Path, watch: Stopwatch) -> Answered:
    """Computes all answers of a run. `scratch` takes the sorted files of large answers.

    Raises RunFailed if Spark fails, or Unavailable if a disk is full.
    """
    question_set = material.question_set
    by_question = {name: plan for plan in question_set.partials for name in plan.questions}
    plans = [_plan(question, by_question[question.name], material) for question in question_set.questions]
    size_shuffles(spark)
    plans.sort(key=lambda plan: -material.rows_of(plan.partial.name))  # the longest starts first
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="answers") as threads:
        jobs = _AnswerJobs(spark, material, scratch)
        running = {plan.question.name: threads.submit(jobs.run, plan, watch) for plan in plans}
        try:
            answers = {name: job.result() for name, job in running.items()}
        except SPARK_ERRORS as error:
            raise failure_of(error) from error
    unknown = {
        table: distinct(ids for computed in answers.values() for ids in computed.unknown.get(table, ()))
        for table in question_set.tables
    }
    computed = {question.name: answers[question.name].computed for question in question_set.questions}
    return Answered(ComputedAnswers(question_set, computed, unknown), _flows(material, plans, computed))


def _plan(question: Question, partial: PartialPlan, material: Material) -> AnswerPlan:
    parameters, stored = material.question_set.parameters, material.footers_of(partial.name)
    rows = sum(footers.total for footers in stored)
    bounds = joined([footers.bounds for footers in stored if footers.total])
    return AnswerPlan(question, partial, parameters, material.small_tables, rows, bounds)


@dataclass(frozen=True)
class _AnswerJobs:
    spark: SparkSession
    material: Material
    scratch: Path

    def run(self, plan: AnswerPlan, watch: Stopwatch) -> _Answer:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", SCHEDULER_POOL)
        with tagged_jobs(self.spark, [self.material.run]), watch.lap(f"answer {plan.question.name}"):
            return self._answer(plan)

    def _answer(self, plan: AnswerPlan) -> _Answer:
        question, material = plan.question, self.material
        frame, tables = self._partials(plan), self._tables(question)
        if question.lists_rows:
            return self._sorted(plan, frame.transform(listed(plan, tables)))
        rows = material.rows_of(plan.partial.name)
        cut = cut_for(self.spark.sparkContext.defaultParallelism) if rows > _MANY_ROWS else None
        groups = frame.transform(merged_groups(plan, tables, cut)).transform(ranked_groups(plan))
        unknown = self._unknown_keys(plan, frame, tables)
        if question.rank is not None and not material.can_collect(question, rows):
            groups, rows = self._written(plan, groups)  # a rank may keep only a few groups
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
        """The tables with only the rows whose attributes the answer shows, and a plan that broadcasts them.

        These attributes are part of an answer that can be collected, so they can be broadcast too.
        """
        question = plan.question
        columns = dict(zip((key.name for key in question.keys), plan.keys, strict=True))
        few = dict(tables)
        for table in dict.fromkeys(attribute.table for attribute in question.attributes):
            shown = {
                columns[question.identity(attribute)]
                for attribute in question.attributes
                if attribute.table == table
            }
            ids = distinct(chunk for column in shown for chunk in groups[column].drop_null().chunks)
            if len(ids) <= BROADCAST_ROWS:
                few[table] = tables[table].transform(rows_with(self.spark, LAYOUT[table].key, ids))
                plan = replace(plan, small_tables=plan.small_tables | {table})
        return plan, few

    def _written(self, plan: AnswerPlan, groups: DataFrame) -> tuple[DataFrame, int]:
        """The same groups, written to files and read from there, and their number."""
        space = self.material.storage.workspace(self.scratch)
        target = self.material.sorting / f"{plan.question.name}-groups"
        groups.write.parquet(space.url(target))
        rows = count_rows(space, target)
        return self.spark.read.schema(groups.schema).parquet(space.url(target)), rows

    def _sorted(
        self, plan: AnswerPlan, frame: DataFrame, unknown: Mapping[str, Sequence[pa.Array]] | None = None
    ) -> _Answer:
        """An answer of any size: sorted by Spark, and fetched as files."""
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
        unmatched = [_unmatched(question, pa.Table.from_batches([batch])) for batch in batches]
        return _Answer(computed, _joined(unknown or {}, *unmatched))

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
                material.question_set.tables[table],
                [material.storage.url(key) for key in material.files[table]],
            )
            for table in question.looked_up
        }


def cut_for(cores: int) -> Cut:
    """How many partials are merged with this number of cores."""
    return slices(cores) if cores <= _FEW_CORES else shuffled


def rows_with(spark: SparkSession, key: str, ids: pa.Array) -> Stage:
    """The rows with these ids: by a filter for a few ids, by a join for more.

    Each id of a filter costs two calls to the JVM and a literal in the plan.
    """

    def matching(rows: DataFrame) -> DataFrame:
        if len(ids) <= _MOST_IDS_IN_FILTER:
            return rows.where(f.col(key).isin(ids.to_pylist()))
        bounds = pc.min_max(ids).as_py()
        in_range = rows.where(f.col(key).between(bounds["min"], bounds["max"]))
        listed_ids = spark.createDataFrame(pa.table({key: ids}))
        return in_range.join(f.broadcast(listed_ids), on=key, how="leftsemi")

    return matching


def _unmatched(question: Question, table: pa.Table) -> dict[str, list[pa.Array]]:
    """The ids of the answer that their tables lack, without duplicates."""
    unknown: dict[str, list[pa.Array]] = {}
    for attribute in question.attributes:
        key = question.identity(attribute)
        ids = table[key].filter(pc.invert(table[matched_name(key)])).drop_null()
        unknown[attribute.table] = [distinct(ids.chunks)]
    return unknown


def _joined(*unknown: Mapping[str, Sequence[pa.Array]]) -> dict[str, list[pa.Array]]:
    tables = dict.fromkeys(table for by_table in unknown for table in by_table)
    return {table: [ids for by_table in unknown for ids in by_table.get(table, ())] for table in tables}


def _flows(
    material: Material, plans: Sequence[AnswerPlan], computed: Mapping[str, ComputedAnswer]
) -> dict[str, RowFlow]:
    """Rows of partials enter the ranking of a question; the rows of its answer leave it and pass the
    joins."""
    flows: dict[str, RowFlow] = {}
    for plan in plans:
        question = plan.question
        partial_rows, rows = material.rows_of(plan.partial.name), computed[question.name].rows
        entered = [] if question.lists_rows else [(question.stages.rank, partial_rows)]
        entered += [(stage, rows) for stage in question.stages.join]
        for stage, rows_in in entered:
            flows[stage] = flows.get(stage, RowFlow()) + RowFlow(rows_in, rows)
    total = sum(answer.rows for answer in computed.values())
    return flows | {SERVER_RESULTS: RowFlow(total, total)}
