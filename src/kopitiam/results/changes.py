"""Two answers to the same question side by side: rows that are new or gone, and figures that changed.

Rows are the same if their keys are. A row of a list has no figures: it is new or gone as often as one answer
has it more often than the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from kopitiam.questions.definitions import AnswerColumn, Question
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, Value, cell_text

State = Literal["new", "gone", "changed"]
MOST_COMPARED = 2_000_000  # rows of both answers together; a comparison holds them in memory
MOST_SHOWN = 500
_BEFORE, _AFTER = "before ", "after "  # no column of an answer has a name with a blank
_ALL = "all rows"  # the key of an answer without keys
_TENTH = Decimal("0.1")


@dataclass(frozen=True)
class RowChange:
    """A row that differs. `before` and `after` have its measures; None for an answer without the row."""

    state: State
    labels: dict[str, Value]  # keys and names
    before: dict[str, Value] | None
    after: dict[str, Value] | None
    times: int = 1  # of a listed row


@dataclass(frozen=True)
class AnswerChanges:
    """How two answers to a question differ: all counts, and the first rows in the order of the answer."""

    question: Question
    new: int
    gone: int
    changed: int
    same: int
    rows: tuple[RowChange, ...] = ()
    left_out: int = 0
    is_compared: bool = True  # False: there are too many rows, and only their number is known

    @property
    def text(self) -> str:
        """The counts: `2 new, 1 gone, 3 changed, 40 the same`."""
        if not self.is_compared:
            return f"{self.new:,} rows now, {self.gone:,} before: too many to compare"
        counts = {"new": self.new, "gone": self.gone, "changed": self.changed, "the same": self.same}
        shown = [f"{count:,} {word}" for word, count in counts.items() if count]
        return ", ".join(shown) or "no rows"

    @property
    def titles(self) -> list[str]:
        """The columns of `cells`."""
        measures = [column.name for column in _measures(self.question)]
        figures = [title for name in measures for title in (f"{name} before", name, "difference", "%")]
        return ["", *(column.name for column in _labels(self.question)), *figures]

    @property
    def figure_places(self) -> set[int]:
        """The places of the columns of `cells` that hold figures."""
        return set(range(1 + len(_labels(self.question)), len(self.titles)))

    def cells(self) -> Iterator[list[str]]:
        """The shown rows as texts for people: state, keys and names, and for each measure both values, their
        difference and the percentage."""
        for change in self.rows:
            times = f" ({change.times:,} times)" if change.times > 1 else ""
            labels = [cell_text(column, change.labels[column.name]) for column in _labels(self.question)]
            figures = [text for column in _measures(self.question) for text in _figure_texts(column, change)]
            yield [change.state + times, *labels, *figures]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; amounts are texts, so that no reader converts them to floats."""
        counts = {"new": self.new, "gone": self.gone, "changed": self.changed, "same": self.same}
        return counts | {"compared": self.is_compared, "rows": [_as_json(change) for change in self.rows]}


@dataclass(frozen=True)
class ChangesSince:
    """All answers that can be compared, by question. `since` names the earlier answers: `version 3`."""

    since: str
    by_question: Mapping[str, AnswerChanges]

    def to_dict(self) -> dict[str, Any]:
        return {name: changes.to_dict() for name, changes in self.by_question.items()}


def compare_all(
    before: Answers, after: Answers, since: str, most_compared: int = MOST_COMPARED
) -> ChangesSince:
    """Compares the answers to all questions that both runs asked in the same form."""
    shared = [q for q in after.question_set.questions if q in before.question_set.questions]
    return ChangesSince(since, {q.name: compare(before, after, q, most_compared) for q in shared})


def compare(
    before: Answers, after: Answers, question: Question, most_compared: int = MOST_COMPARED
) -> AnswerChanges:
    """Compares the answers to a question that both runs asked in the same form."""
    counts = after.rows(question.name), before.rows(question.name)
    if sum(counts) > most_compared:
        return AnswerChanges(question, *counts, changed=0, same=0, is_compared=False)
    joined = _joined(question, _read(before, question), _read(after, question))
    states = _states(question, joined)
    differing = _in_order(question, joined.append_column("state", states)).filter(pc.field("state") != "same")
    changes = [_change(question, row) for row in differing.slice(0, MOST_SHOWN).to_pylist()]
    if question.lists_rows:
        more = pc.subtract(joined["in_after"], joined["in_before"])
        new, gone = (_total(pc.max_element_wise(side, 0)) for side in (more, pc.negate(more)))
        same = _total(pc.min_element_wise(joined["in_before"], joined["in_after"]))
        return AnswerChanges(question, new, gone, 0, same, tuple(changes), differing.num_rows - len(changes))
    tally = {entry["values"]: entry["counts"] for entry in pc.value_counts(states).to_pylist()}
    new, gone, changed, same = (tally.get(state, 0) for state in ("new", "gone", "changed", "same"))
    return AnswerChanges(
        question, new, gone, changed, same, tuple(changes), differing.num_rows - len(changes)
    )


def percent(before: Value, after: Value) -> Decimal | None:
    """The difference in percent of the earlier figure, with one decimal; None if that is 0 or missing."""
    if before is None or after is None or not before:
        return None
    earlier, later = Decimal(str(before)), Decimal(str(after))
    return ((later - earlier) * 100 / abs(earlier)).quantize(_TENTH, ROUND_HALF_UP)


def _read(answers: Answers, question: Question) -> pa.Table:
    columns = [column.name for column in (*_identifying(question), *_measures(question))]
    fields = pa.schema([answers.schema(question.name).field(name) for name in columns])
    return pa.Table.from_batches(answers.batches(question.name, columns), fields)


def _joined(question: Question, before: pa.Table, after: pa.Table) -> pa.Table:
    """One row for each combination of keys, with the figures of both sides and how often each has it.

    A grouping of row numbers, not a join: a join would not match keys that are null.
    """
    keys = [key.name for key in question.keys] or [_ALL]
    sides = []
    for side, table in ((_BEFORE, before), (_AFTER, after)):
        numbers = pa.array(range(len(table)), pa.int64())
        columns = {name: table[name] if name != _ALL else pa.nulls(len(table), pa.int8()) for name in keys}
        sides.append(pa.table({**columns, side: numbers}))
    grouped = (
        pa.concat_tables(sides, promote_options="default")
        .group_by(keys, use_threads=False)
        .aggregate([(side, function) for side in (_BEFORE, _AFTER) for function in ("max", "count")])
    )
    earlier, later = before.take(grouped[f"{_BEFORE}_max"]), after.take(grouped[f"{_AFTER}_max"])
    columns = {
        "in_before": grouped[f"{_BEFORE}_count"],
        "in_after": grouped[f"{_AFTER}_count"],
        **{c.name: pc.coalesce(later[c.name], earlier[c.name]) for c in _identifying(question)},
    }
    for column in _measures(question):
        columns |= {_BEFORE + column.name: earlier[column.name], _AFTER + column.name: later[column.name]}
    return pa.table(columns)


def _states(question: Question, joined: pa.Table) -> pa.Array:
    is_changed = pa.array([False] * len(joined), pa.bool_())
    if question.lists_rows:
        is_new = pc.greater(joined["in_after"], joined["in_before"])
        is_gone = pc.less(joined["in_after"], joined["in_before"])
    else:
        is_new, is_gone = pc.equal(joined["in_before"], 0), pc.equal(joined["in_after"], 0)
        for column in _measures(question):
            before, after = joined[_BEFORE + column.name], joined[_AFTER + column.name]
            is_changed = pc.or_(is_changed, _differs(before, after))
    return pc.case_when(pc.make_struct(is_new, is_gone, is_changed), "new", "gone", "changed", "same")


def _differs(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compares figures, which may have types of different widths, and may be null."""
    unequal = pc.fill_null(pc.not_equal(before, after), False)
    return pc.or_(unequal, pc.not_equal(before.is_null(), after.is_null()))


def _in_order(question: Question, joined: pa.Table) -> pa.Table:
    columns = [name for name in question.sort_columns if name in joined.column_names]
    if not columns:
        return joined
    return joined.take(pc.sort_indices(joined, [(name, "ascending", "at_start") for name in columns]))


def _change(question: Question, row: dict[str, Any]) -> RowChange:
    measures = [column.name for column in _measures(question)]
    before, after = (
        {name: row[side + name] for name in measures} if row[count] else None
        for side, count in ((_BEFORE, "in_before"), (_AFTER, "in_after"))
    )
    labels = {column.name: row[column.name] for column in _identifying(question)}
    times = abs(row["in_after"] - row["in_before"]) if question.lists_rows else 1
    return RowChange(row["state"], labels, before, after, times)


def _identifying(question: Question) -> list[AnswerColumn]:
    return [column for column in question.answer_columns if column.role in ("key", "attribute")]


def _labels(question: Question) -> list[AnswerColumn]:
    """Keys and names to show: an id is left out if its name is shown."""
    named = {question.identity(column.attribute) for column in question.answer_columns if column.attribute}
    return [
        column
        for column in _identifying(question)
        if column.name not in named or column.name in question.shown
    ]


def _measures(question: Question) -> list[AnswerColumn]:
    return [column for column in question.answer_columns if column.role == "measure"]


def _figure_texts(column: AnswerColumn, change: RowChange) -> Sequence[str]:
    before = None if change.before is None else change.before[column.name]
    after = None if change.after is None else change.after[column.name]
    texts = [
        "" if row is None else cell_text(column, value)
        for row, value in ((change.before, before), (change.after, after))
    ]
    if column.kind not in FIGURES or before is None or after is None:
        return [*texts, "", ""]
    share = percent(before, after)
    difference: Any = after - before  # type: ignore[operator]
    sign = "+" if difference > 0 else ""
    return [*texts, sign + cell_text(column, difference), "" if share is None else f"{share:+,}"]


def _as_json(change: RowChange) -> dict[str, Any]:
    def plain(values: dict[str, Value] | None) -> dict[str, Any] | None:
        if values is None:
            return None
        return {
            name: value if value is None or isinstance(value, bool | int) else str(value)
            for name, value in values.items()
        }

    figures = (
        {"before": plain(change.before), "after": plain(change.after)}
        if change.before or change.after
        else {}
    )
    return {"state": change.state, **(plain(change.labels) or {}), **figures, "times": change.times}


def _total(counts: pa.ChunkedArray) -> int:
    return int(pc.sum(counts).as_py() or 0)
