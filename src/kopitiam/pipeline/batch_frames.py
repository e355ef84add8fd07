"""What a batch computes: the chunks of its runs, cut into parts, and for each part one frame for each plan.

A part is read by one task, and nothing is shuffled: partials add up however the rows are cut.
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
    def asked(self) -> QuestionSet:
        return QuestionSet.of_run(self.run.questions)

    @property
    def has_facts(self) -> bool:
        facts = {plan.fact for plan in self.asked.partials}
        return any(chunk.table in facts for chunk in self.chunks)


_Chunk = tuple[Share, LogEntry]


@dataclass(frozen=True)
class _Part:
    """Rows that one task reads, of one shard or of several that the rows name; likewise for runs."""

    rows: DataFrame
    run: str | None
    shard: int | None
    count: int
    bounds: Mapping[str, Interval | None]

    def with_origin(self, frame: DataFrame) -> DataFrame:
        """A single run or shard is named last: as a key of every row it would take a sixth more time."""
        if self.run is not None:
            frame = frame.withColumn(RUN, f.lit(self.run))
        return frame if self.shard is None else frame.withColumn(SHARD, f.lit(self.shard))


def frames(spark: SparkSession, storage: StoragePort, shares: Sequence[Share]) -> list[tuple[str, DataFrame]]:
    """By kind, for runs that ask the same at once; the frames that take longest come first."""
    every: list[tuple[int, str, DataFrame]] = []
    for group in _alike(shares):
        asked = group[0].asked
        for fact in dict.fromkeys(plan.fact for plan in asked.partials):
            chunks = [(share, chunk) for share in group for chunk in share.chunks if chunk.table == fact]
            for part in _parts(spark, storage, chunks, fact):
                every += _partials(part, fact, asked)
            unclear = [(share, chunk) for share, chunk in chunks if counts_of_chunk(share, chunk) is None]
            for part in _parts(spark, storage, unclear, fact):
                every.append(_counts(part, fact, asked))
    return [(kind, frame) for _, kind, frame in sorted(every, key=lambda each: each[0])]


def counts_of_chunk(share: Share, chunk: LogEntry) -> dict[Conditions, int] | None:
    """How many rows of a chunk meet each set of conditions that no partial counts, told from the bounds of
    its columns; None if Spark has to count them."""
    asked, bounds = share.asked, share.inspections.get(chunk, Inspection()).bounds
    counts = {
        conditions: rows_meeting(conditions, bounds, asked.parameters, chunk.rows)
        for conditions in asked.stages.counted_apart.get(chunk.table, ())
    }
    known = {conditions: count for conditions, count in counts.items() if count is not None}
    return known if len(known) == len(counts) else None


def _alike(shares: Sequence[Share]) -> list[list[Share]]:
    groups: dict[QuestionSet, list[Share]] = defaultdict(list)
    for share in shares:
        groups[share.asked].append(share)
    return list(groups.values())


def _partials(part: _Part, fact: str, asked: QuestionSet) -> Iterator[tuple[int, str, DataFrame]]:
    for plan in asked.partials:
        if plan.fact == fact:
            is_wide = needs_wide(plan, part.bounds, part.count)
            frame = part.rows.transform(partial_of(plan, asked.parameters, is_wide))
            yield _order(plan), plan.name, part.with_origin(frame)


def _counts(part: _Part, fact: str, asked: QuestionSet) -> tuple[int, str, DataFrame]:
    frame = part.rows.transform(counts_of(asked.stages.counted_apart[fact], asked.parameters))
    return len(_ORDER), counts_kind(fact), part.with_origin(frame)


_ORDER = ("many groups", "few groups", "rows")


def _order(plan: PartialPlan) -> int:
    """Tasks begin in this order: the longest first, or the last one would keep the others waiting."""
    if plan.lists_rows:
        return _ORDER.index("rows")
    names = {getattr(expression, "name", "") for expression in plan.kept}
    return _ORDER.index("many groups" if names & {"user_id", "transaction_id"} else "few groups")


def _parts(spark: SparkSession, storage: StoragePort, chunks: Sequence[_Chunk], table: str) -> list[_Part]:
    """None where there are no chunks: even an empty task takes its time."""
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
    form = pairs[0][0].asked.tables[table]
    rows = read_table(spark, storage.url(KEYS.landing), form, files).drop("table")
    if run is not None:
        rows = rows.drop(RUN)
    if shard is not None:
        rows = rows.drop(SHARD)
    inspections = [share.inspections.get(chunk, Inspection()) for share, chunk in pairs]
    bounds = {column.name: _joint(column.name, inspections) for column in form.columns}
    return _Part(rows.coalesce(1), run, shard, sum(chunk.rows for _, chunk in pairs), bounds)


def _joint(column: str, inspections: Sequence[Inspection]) -> Interval | None:
    found = [inspection.bounds.get(column) for inspection in inspections]
    known = [bounds for bounds in found if bounds is not None]
    if len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)
