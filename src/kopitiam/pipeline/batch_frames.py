"""The frames of a batch: one for each plan of the runs that ask the same questions.

A frame reads all its chunks, in as many tasks as Spark has cores: plans do not grow with cores or chunks.
Rows are aggregated where they are read, and the groups of all tasks are shuffled. Few rows are read by one
task, without a shuffle. Rows that hardly share groups are written as they are: to hash them here and again in
the final step takes more time than it saves.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.layout import KEYS, owner_of
from kopitiam.contracts.runs import LogEntry, Run
from kopitiam.landing.chunks import Inspection
from kopitiam.pipeline.compiler.bounds import joined, may_share_groups, needs_wide, rows_meeting
from kopitiam.pipeline.compiler.partials import RUN, SHARD, counts_of, partial_of
from kopitiam.pipeline.partials import counts_kind
from kopitiam.pipeline.tables import read_table
from kopitiam.questions.plans import Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet
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

    @cached_property
    def owners(self) -> frozenset[str]:
        """The run itself, or the data files that its chunks belong to."""
        return frozenset(map(self.owner, self.files))

    def owner(self, chunk: LogEntry) -> str:
        """The id in the path of the chunk, under which its partials are written."""
        return owner_of(self.files[chunk])

    def is_in_shard(self, chunk: LogEntry) -> bool:
        """Whether the path has the shard of the chunk. A data file may have been stored with other shards."""
        return self.files[chunk].parent.parent.name == f"shard={chunk.shard}"

    @property
    def has_facts(self) -> bool:
        facts = {plan.fact for plan in self.question_set.partials}
        return any(chunk.table in facts for chunk in self.chunks)

    def inspection(self, chunk: LogEntry) -> Inspection:
        return self.inspections.get(chunk, Inspection())


def without_shared_files(shares: list[Share]) -> list[list[Share]]:
    """Groups of shares. No group has two runs that read the same data file: partials are written into a
    folder that is named by the file."""
    groups: list[list[Share]] = []
    for share in shares:
        for group in groups:
            if all(share.owners.isdisjoint(other.owners) for other in group):
                group.append(share)
                break
        else:
            groups.append([share])
    return groups


FEW_ROWS = 250_000  # of a table; one task aggregates them quickly
Frame = tuple[str, DataFrame]
_Chunk = tuple[Share, LogEntry]


@dataclass(frozen=True)
class _Scan:
    """The rows of chunks of one fact. For rows of several runs, data files or shards, `run` or `shard` is
    None, and a column of the rows has the value."""

    rows: DataFrame
    run: str | None
    shard: int | None

    def with_origin(self, frame: DataFrame) -> DataFrame:
        """Adds a single run or shard after the aggregation: as a key of every row it takes a sixth more
        time."""
        if self.run is not None:
            frame = frame.withColumn(RUN, f.lit(self.run))
        return frame if self.shard is None else frame.withColumn(SHARD, f.lit(self.shard))


def frames(spark: SparkSession, storage: StoragePort, shares: Sequence[Share]) -> list[Frame]:
    """Frames with their kinds. Runs with the same questions share frames; the slowest frames come first."""
    ordered: list[tuple[int, Frame]] = []
    for group in _by_questions(shares):
        question_set = group[0].question_set
        for fact in dict.fromkeys(plan.fact for plan in question_set.partials):
            chunks = [(share, chunk) for share in group for chunk in share.chunks if chunk.table == fact]
            if chunks:
                ordered += _partials(spark, storage, chunks, fact)
            if uncounted := [pair for pair in chunks if counts_of_chunk(*pair) is None]:
                scans = _scans(spark, storage, uncounted)
                ordered += ((len(_ORDER), _counts(scan, fact, question_set)) for scan in scans)
    return [frame for _, frame in sorted(ordered, key=lambda entry: entry[0])]


def counts_of_chunk(share: Share, chunk: LogEntry) -> dict[Conditions, int] | None:
    """The rows of a chunk that meet each set of conditions which no partial counts, from the bounds of its
    columns; None if Spark has to count them."""
    question_set, bounds = share.question_set, share.inspection(chunk).bounds
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


def _partials(
    spark: SparkSession, storage: StoragePort, chunks: Sequence[_Chunk], fact: str
) -> Iterator[tuple[int, Frame]]:
    """The partials of these chunks, with their order. Chunks whose sums may exceed 64 bits are computed apart
    from the others: 38 digits take several times as long."""
    question_set = chunks[0][0].question_set
    plans = [plan for plan in question_set.partials if plan.fact == fact]
    rows = sum(chunk.rows for _, chunk in chunks)
    lots: dict[frozenset[str], list[_Chunk]] = defaultdict(list)
    for share, chunk in chunks:
        bounds = share.inspection(chunk).bounds
        lots[frozenset(plan.name for plan in plans if needs_wide(plan, bounds, rows))].append((share, chunk))
    for wide, lot in lots.items():
        bounds = joined([share.inspection(chunk).bounds for share, chunk in lot])
        rows = sum(chunk.rows for _, chunk in lot)
        grouped = {plan.name for plan in plans if may_share_groups(plan, bounds, rows)}
        for scan in _scans(spark, storage, lot):
            for plan in plans:
                partial = partial_of(
                    plan, question_set.parameters, is_wide=plan.name in wide, is_grouped=plan.name in grouped
                )
                yield _order(plan), (plan.name, scan.with_origin(scan.rows.transform(partial)))


_ORDER = ("many groups", "few groups", "rows")


def _order(plan: PartialPlan) -> int:
    """Tasks start in this order, the longest first: otherwise the job would wait for the last one."""
    if plan.lists_rows:
        return _ORDER.index("rows")
    names = {getattr(expression, "name", "") for expression in plan.kept}
    return _ORDER.index("many groups" if names & {"user_id", "transaction_id"} else "few groups")


def _counts(scan: _Scan, fact: str, question_set: QuestionSet) -> Frame:
    counts = counts_of(question_set.stages.counted_apart[fact], question_set.parameters)
    return counts_kind(fact), scan.with_origin(scan.rows.transform(counts))


def _scans(spark: SparkSession, storage: StoragePort, chunks: Sequence[_Chunk]) -> list[_Scan]:
    """One scan of all chunks, or one for each shard if a data file was stored with other shards."""
    if all(share.is_in_shard(chunk) for share, chunk in chunks):
        return [_scan(spark, storage, chunks)]
    by_shard: dict[int, list[_Chunk]] = defaultdict(list)
    for share, chunk in chunks:
        by_shard[chunk.shard].append((share, chunk))
    return [_scan(spark, storage, of_shard) for of_shard in by_shard.values()]


def _scan(spark: SparkSession, storage: StoragePort, chunks: Sequence[_Chunk]) -> _Scan:
    (share, chunk), *_ = chunks
    files = [storage.url(share.files[chunk]) for share, chunk in chunks]
    form = share.question_set.tables[chunk.table]
    rows = read_table(spark, storage.url(KEYS.landing), form, files).drop("table")
    is_one_run = len({share.owner(chunk) for share, chunk in chunks}) == 1
    is_one_shard = len({chunk.shard for _, chunk in chunks}) == 1
    rows = rows.drop(*([RUN] if is_one_run else []), *([SHARD] if is_one_shard else []))
    if sum(chunk.rows for _, chunk in chunks) <= FEW_ROWS:
        rows = rows.coalesce(1)
    return _Scan(rows, share.owner(chunk) if is_one_run else None, chunk.shard if is_one_shard else None)
