"""Plans partials, stages and row counts of a set of questions.

Pure values. The pipeline compiles them to Spark; the barrier, the status and the dashboard show the stages.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import FILTERS, NamedFilter, Question
from kopitiam.questions.expressions import Aggregate, Expression

SERVER_RESULTS = "server_results"
PARTIAL_FORMAT = 1  # increase it when the same plan gives partials with other columns or values
COUNT_ROWS = Aggregate("count", None, Kind.COUNT)

Condition = NamedFilter | Expression
Conditions = frozenset[Condition]
ALL_ROWS: Conditions = frozenset()
StageRole = Literal["check", "filter", "aggregate", "rank", "join", "publish"]


@dataclass(frozen=True)
class FilterStep:
    """A filter stage: a named filter, or the conditions of one question."""

    stage: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class PartialPlan:
    """The plan of a partial: the values and aggregates that it stores, and the questions that share it.

    A partial that lists rows keeps the values of each row. Any other keeps aggregates for each combination of
    values; the first aggregate counts rows.
    """

    name: str  # of the first question
    fact: str
    steps: tuple[FilterStep, ...]
    kept: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    stage: str | None  # of the aggregation; None if it lists rows
    questions: tuple[str, ...]

    @property
    def lists_rows(self) -> bool:
        return self.stage is None

    @property
    def conditions(self) -> Conditions:
        return frozenset(condition for step in self.steps for condition in step.conditions)

    @property
    def conditions_after(self) -> tuple[Conditions, ...]:
        """The conditions that the rows behind each step meet, all earlier ones included."""
        conditions, after = ALL_ROWS, []
        for step in self.steps:
            conditions |= frozenset(step.conditions)
            after.append(conditions)
        return tuple(after)

    def key(self, parameters: Parameters) -> str:
        """A digest of everything that the partial of given rows depends on.

        Partials with the same key are the same, whatever the names of the questions and the parameters that
        none of its conditions use.
        """
        conditions = sorted(_spelled(condition, parameters) for condition in self.conditions)
        parts = (PARTIAL_FORMAT, self.fact, self.lists_rows, conditions, self.kept, self.aggregates)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:_KEY_DIGITS]


_KEY_DIGITS = 32


def _spelled(condition: Condition, parameters: Parameters) -> str:
    match condition:
        case "@year":
            return f"@year {parameters.first_year} {parameters.last_year}"
        case "@hour":
            return f"@hour {parameters.opening_second} {parameters.closing_second}"
        case "@amount":
            return f"@amount {parameters.min_units}"
    return repr(condition)


@dataclass(frozen=True)
class FilterCount:
    """A filter stage of a fact: which conditions its input rows meet, and which its output rows."""

    stage: str
    fact: str
    rows_in: Conditions
    rows_out: Conditions


@dataclass(frozen=True)
class StagePlan:
    """The stages of a run, before and behind the barrier, and what they count."""

    of_table: Mapping[str, tuple[str, ...]]  # stages before the barrier, by table that feeds them
    behind_barrier: tuple[str, ...]
    roles: Mapping[str, StageRole]
    filters: tuple[FilterCount, ...]
    counted_apart: Mapping[str, tuple[Conditions, ...]]  # by fact: conditions whose rows no partial counts

    @property
    def before_barrier(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stage for stages in self.of_table.values() for stage in stages))

    def tables_of(self, stage: str) -> tuple[str, ...]:
        return tuple(table for table, stages in self.of_table.items() if stage in stages)


def plan_partials(questions: Iterable[Question]) -> tuple[PartialPlan, ...]:
    """One plan for each distinct partial of the questions."""
    sharing: dict[object, list[Question]] = {}
    for question in questions:
        sharing.setdefault(question.partial, []).append(question)
    return tuple(_partial(group) for group in sharing.values())


def _partial(questions: Sequence[Question]) -> PartialPlan:
    first = questions[0]
    aggregates = [COUNT_ROWS, *(a for question in questions for a in question.aggregates)]
    stored = [a for a in aggregates if a.aggregation != "count_distinct"]  # its values are among `kept`
    return PartialPlan(
        name=first.name,
        fact=first.fact,
        steps=tuple(_steps(first)),
        kept=first.kept,
        aggregates=() if first.lists_rows else tuple(dict.fromkeys(stored)),
        stage=None if first.lists_rows else first.stages.aggregate,
        questions=tuple(question.name for question in questions),
    )


def _steps(question: Question) -> Iterable[FilterStep]:
    for name in FILTERS:
        if name in question.filters:
            yield FilterStep(f"filter_{name[1:]}", (name,))
    if own := tuple(condition for condition in question.filters if not isinstance(condition, str)):
        yield FilterStep(f"filter_{question.name}", own)


def plan_stages(
    questions: Sequence[Question], partials: Sequence[PartialPlan], tables: Sequence[str]
) -> StagePlan:
    """The stages of a run. Raises QuestionError if two stages share a name."""
    filters = tuple(dict.fromkeys(count for partial in partials for count in _filter_counts(partial)))
    counted_by_partials = {(partial.fact, partial.conditions) for partial in partials}
    facts = dict.fromkeys(partial.fact for partial in partials)
    of_table = {table: _stages_of(table, filters, partials) for table in tables}
    behind = [stage for question in questions for stage in _behind_barrier(question)]
    return StagePlan(
        of_table=of_table,
        behind_barrier=(*dict.fromkeys(behind), SERVER_RESULTS),
        roles=_roles(questions, partials, filters, tables),
        filters=filters,
        counted_apart={
            fact: tuple(
                dict.fromkeys(
                    count.rows_out
                    for count in filters
                    if count.fact == fact and (fact, count.rows_out) not in counted_by_partials
                )
            )
            for fact in facts
        },
    )


def _filter_counts(partial: PartialPlan) -> Iterable[FilterCount]:
    before = ALL_ROWS
    for step, after in zip(partial.steps, partial.conditions_after, strict=True):
        yield FilterCount(step.stage, partial.fact, before, after)
        before = after


def _stages_of(
    table: str, filters: Iterable[FilterCount], partials: Iterable[PartialPlan]
) -> tuple[str, ...]:
    stages = [count.stage for count in filters if count.fact == table]
    stages += [partial.stage for partial in partials if partial.fact == table and partial.stage]
    if not stages:  # unfiltered lists of rows, and tables that only the final step reads
        stages = [f"check_{table}"]
    return tuple(dict.fromkeys(stages))


def _behind_barrier(question: Question) -> Iterable[str]:
    if not question.lists_rows:
        yield question.stages.rank
    yield from question.stages.join


def _roles(
    questions: Iterable[Question],
    partials: Iterable[PartialPlan],
    filters: Iterable[FilterCount],
    tables: Iterable[str],
) -> dict[str, StageRole]:
    """The role of each stage. Raises QuestionError if two stages share a name.

    Questions may share stages behind the barrier; an aggregate stage belongs to one partial.
    """
    claims: list[tuple[str, str, StageRole, object]] = [("", SERVER_RESULTS, "publish", None)]
    claims += [("", f"check_{table}", "check", None) for table in tables]
    claims += [("", count.stage, "filter", None) for count in filters]
    claims += [(p.name, p.stage, "aggregate", p) for p in partials if p.stage is not None]
    for question in questions:
        claims += [] if question.lists_rows else [(question.name, question.stages.rank, "rank", None)]
        claims += [(question.name, stage, "join", None) for stage in question.stages.join]
    owners: dict[str, tuple[StageRole, object]] = {}
    for name, stage, role, owner in sorted(
        claims, key=lambda claim: claim[0][:1].isalpha()
    ):  # own questions last
        if owners.setdefault(stage, (role, owner)) != (role, owner):
            raise QuestionError(
                f"question {name}, stages: {stage} is the name of another stage; choose another"
            )
    return {stage: role for stage, (role, _) in owners.items()}
