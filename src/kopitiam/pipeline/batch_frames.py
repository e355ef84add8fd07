"""The frames of a batch: the chunks of its runs are cut into parts, with one frame for each part and plan.

One task reads a part, and nothing is shuffled: partials add up however the rows are cut.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import LogEntry, Run
from kopitiam.landing.chunks import Inspection
from kopitiam.pipeline.compiler.bounds import Interval, needs_wide, rows_meeting
from kopitiam.pipeline.compiler.partials import RUN, SHARD, counts_of, partial_of
from kopitiam.pipeline.partials import counts_kind
from kopitiam.pipeline.tables import read_table
from kopitiam.questions.plans import Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.spark.jobs import parallel_tasks
from kopitiam.storage.port import Key, StoragePort


@dataclass(frozen=True)
class Share:
    """The chunks of one run in a batch, and their files."""

    run: Run
    files: Mapping[LogEntry, Key]
    landed: Mapping[LogEntry, str | None]  # the digests that these files were registered with
    inspections: Mapping[LogEntry, Inspection] = field(default_factory=dict)

    @property
    def chunks(self) -> tuple[LogEntry, ...]:
        return tuple(self.files)

    @property
    def question_set(self) -> QuestionSet:
        return QuestionSet.of_run(self.run.questions)

    @property
    def has_facts(self) -> bool:
        facts = {plan.fact for plan in self.question_set.partials}
        return any(chunk.table in facts for chunk in self.chunks)


_Chunk = tuple[Share, LogEntry]


@dataclass(frozen=True)
class _Part:
    """Rows that one task reads. For rows of several runs or shards, `run` or `shard` is None, and a column of
    the rows has the value."""

    rows: DataFrame
    run: str | None
    shard: int | None
    count: int
    bounds: Mapping[str, Interval | None]

    def with_origin(self, frame: DataFrame) -> DataFrame:
        """Adds a single run or shard after the aggregation: as a key of every row it takes a sixth more
        time."""
        if self.run is not None:
            frame = frame.withColumn(RUN, f.lit(self.run))
        return frame if self.shard is None else frame.withColumn(SHARD, f.lit(self.shard))


def frames(spark: SparkSession, storage: StoragePort, shares: Sequence[Share]) -> list[tuple[str, DataFrame]]:
    """Frames with their kinds. Runs with the same questions share frames; the slowest frames come first."""
    ordered: list[tuple[int, str, DataFrame]] = []
    for group in _by_questions(shares):
        question_set = group[0].question_set
        for fact in dict.fromkeys(plan.fact for plan in question_set.partials):
            chunks = [(share, chunk) for share in group for chunk in share.chunks if chunk.table == fact]
            for part in _parts(spark, storage, chunks, fact):
                ordered += _partials(part, fact, question_set)
            uncounted = [(share, chunk) for share, chunk in chunks if counts_of_chunk(share, chunk) is None]
            for part in _parts(spark, storage, uncounted, fact):
                ordered.append(_counts(part, fact, question_set))
    return [(kind, frame) for _, kind, frame in sorted(ordered, key=lambda entry: entry[0])]


def counts_of_chunk(share: Share, chunk: LogEntry) -> dict[Conditions, int] | None:
    """The rows of a chunk that meet each set of conditions which no partial counts, from the bounds of its
    columns; None if Spark has to count them."""
    question_set, bounds = share.question_set, share.inspections.get(chunk, Inspection()).bounds
    counts = {
        conditions: rows_meeting(conditions, bounds, question_set.parameters, chunk.rows)
        for conditions in question_set.stages.counted_apart.get(chunk.table, ())
    }
    known = {conditions: count for conditions, count in counts.items() if count is not None}
    return known if len(known) == len(counts) else None


def _by_questions(shares: Sequence[Share]) -> list[list[Share]]:
    groups: dict[QuestionSet, list[Share]] = defaultdict(list)
    for share in shares:
        groups[share.question_set].append(share)
    return list(groups.values())


def _partials(part: _Part, fact: str, question_set: QuestionSet) -> Iterator[tuple[int, str, DataFrame]]:
    for plan in question_set.partials:
        if plan.fact == fact:
            is_wide = needs_wide(plan, part.bounds, part.count)
            frame = part.rows.transform(partial_of(plan, question_set.parameters, is_wide))
            yield _order(plan), plan.name, part.with_origin(frame)


def _counts(part: _Part, fact: str, question_set: QuestionSet) -> tuple[int, str, DataFrame]:
    frame = part.rows.transform(counts_of(question_set.stages.counted_apart[fact], question_set.parameters))
    return len(_ORDER), counts_kind(fact), part.with_origin(frame)


_ORDER = ("many groups", "few groups", "rows")


def _order(plan: PartialPlan) -> int:
    """Tasks start in this order, the longest first: otherwise the job would wait for the last one."""
    if plan.lists_rows:
        return _ORDER.index("rows")
    names = {getattr(expression, "name", "") for expression in plan.kept}
    return _ORDER.index("many groups" if names & {"user_id", "transaction_id"} else "few groups")


def _parts(spark: SparkSession, storage: StoragePort, chunks: Sequence[_Chunk], table: str) -> list[_Part]:
    """Cuts chunks into parts, none of them empty: even an empty task takes time."""
    by_shard: dict[int, list[_Chunk]] = defaultdict(list)
    for share, chunk in chunks:
        by_shard[chunk.shard].append((share, chunk))
    tasks = parallel_tasks(spark)
    lots: list[tuple[list[_Chunk], int | None, int]]
    if len(by_shard) > tasks:  # a part for each shard would be too many tasks
        lots = [([pair for pairs in by_shard.values() for pair in pairs], None, tasks)]
    else:
        lots = [(pairs, shard, tasks // len(by_shard)) for shard, pairs in by_shard.items()]
    runs = {share.run.run for share, _ in chunks}
    run = runs.pop() if len(runs) == 1 else None
    return [
        _part(spark, storage, pairs[number::count], table, run, shard)
        for pairs, shard, most in lots
        for count in [min(most, len(pairs))]
        for number in range(count)
    ]


def _part(  # noqa: PLR0917
    spark: SparkSession,
    storage: StoragePort,
    pairs: Sequence[_Chunk],
    table: str,
    run: str | None,
    shard: int | None,
) -> _Part:
    files = [storage.url(share.files[chunk]) for share, chunk in pairs]
    form = pairs[0][0].question_set.tables[table]
    rows = read_table(spark, storage.url(KEYS.landing), form, files).drop("table")
    if run is not None:
        rows = rows.drop(RUN)
    if shard is not None:
        rows = rows.drop(SHARD)
    inspections = [share.inspections.get(chunk, Inspection()) for share, chunk in pairs]
    bounds = {column.name: _joint_bounds(column.name, inspections) for column in form.columns}
    return _Part(rows.coalesce(1), run, shard, sum(chunk.rows for _, chunk in pairs), bounds)


def _joint_bounds(column: str, inspections: Sequence[Inspection]) -> Interval | None:
    known = [bounds for inspection in inspections if (bounds := inspection.bounds.get(column)) is not None]
    if len(known) < len(inspections):
        return None
    return min(low for low, _ in known), max(high for _, high in known)
