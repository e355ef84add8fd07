"""Definitions read and checked: from TOML files, from JSON, and the built-in catalog.

Errors name file, line, question and key, and say what to write instead.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import (
    RANK,
    Chart,
    Mark,
    Named,
    NamedFilter,
    Question,
    Rank,
    Stages,
)
from kopitiam.questions.expressions import Column, Expression
from kopitiam.questions.layout import FACTS, LAYOUT, LayoutTable
from kopitiam.questions.parsing import Scope, parse

MOST_QUESTIONS = 100
MOST_TOP = 100_000  # as many as Spark ranks without a sort
MOST_TITLE = 200
_MOST: dict[str, int] = {"where": 20, "by": 16, "measure": 32, "columns": 64, "order": 64}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_BUILTIN_NAME = re.compile(r"[0-9](_[0-9])?")
_KEYS = ("name", "title", "from", "where", "by", "measure", "rank", "columns", "order", "chart", "stages")
_FILTERS: tuple[NamedFilter, ...] = get_args(NamedFilter)
_MARKS: tuple[Mark, ...] = get_args(Mark)
_RESERVED = frozenset({RANK, "run", "count"})


@cache
def builtin() -> dict[str, Question]:
    """The catalog's own questions by name."""
    text = files("kopitiam.questions").joinpath("builtin.toml").read_text(encoding="utf-8")
    return {question.name: question for question in read_toml(text, "builtin.toml", is_builtin=True)}


def read_toml(text: str, file: str, *, is_builtin: bool = False) -> list[Question]:
    """The questions of one file; `QuestionError` names file and line of the first flaw."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QuestionError(f"{file}: not TOML: {error}") from None
    entries = document.pop("question", [])
    if document or not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise QuestionError(f"{file}: want [[question]] entries and nothing else")
    if not entries:
        raise QuestionError(f"{file}: no question is defined; begin one with [[question]]")
    questions: list[Question] = []
    for position, entry in enumerate(entries):
        try:
            questions.append(read_definition(entry, is_builtin=is_builtin))
        except _Flaw as flaw:
            line = _line_of(text, position, flaw.key)
            raise QuestionError(f"{file}, line {line}: {flaw}") from None
    _check_together(questions, file)
    return questions


def read_json(definitions: Sequence[Mapping[str, Any]]) -> list[Question]:
    """As `read_toml`, for definitions from JSON: errors name the position."""
    questions: list[Question] = []
    for position, entry in enumerate(definitions, start=1):
        try:
            questions.append(read_definition(entry))
        except _Flaw as flaw:
            raise QuestionError(f"definition {position}: {flaw}") from None
    _check_together(questions, "definitions")
    return questions


def _check_together(questions: Iterable[Question], place: str) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.name in seen:
            raise QuestionError(f"{place}: two questions are named {question.name}; names must differ")
        seen.add(question.name)
    if len(seen) > MOST_QUESTIONS:
        raise QuestionError(f"{place}: {len(seen)} questions; at most {MOST_QUESTIONS} are asked at once")


class _Flaw(QuestionError):
    """With the key of the definition that it is about."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key


def read_definition(entry: Mapping[str, Any], *, is_builtin: bool = False) -> Question:
    """One question from the keys of its definition."""
    reading = _Definition(entry, is_builtin)
    try:
        return reading.question()
    except _Flaw as flaw:
        name = entry.get("name")
        if isinstance(name, str) and _NAME.fullmatch(name):
            flaw.args = (f"question {name}, {flaw}",)
        raise


@dataclass(frozen=True)
class _Definition:
    entry: Mapping[str, Any]
    is_builtin: bool

    def question(self) -> Question:
        for key in self.entry:
            if key not in _KEYS:
                raise _Flaw(str(key)[:40], f"is not known; want some of {', '.join(_KEYS)}")
        name, title, fact = self._name(), self._title(), self._fact()
        filters = tuple(self._filter(text) for text in self._texts("where", may_be_missing=True))
        measures = self._named("measure", Scope(fact.name, is_measure=True))
        keys = self._named("by", Scope(fact.name, may_use_attributes=True))
        if keys and not measures:
            raise _Flaw("measure", "is missing; by groups rows, so say what is measured, such as count(*)")
        shown = self._texts("columns")
        attributes: tuple[Column, ...]
        if measures:
            attributes = self._attributes(shown, keys, measures, fact)
        else:
            keys, attributes = self._listed(shown, fact)
        self._check_names(keys, measures, attributes)
        rank = self._rank(keys, measures)
        known = [*(each.name for each in (*keys, *measures)), *(a.name for a in attributes)]
        shown = tuple(text.rpartition(".")[2] for text in shown)
        if rank is not None:
            known.append(RANK)
        elif RANK in shown:
            raise _Flaw("columns", "rank is shown, but nothing is ranked; add rank = { by = …, top = … }")
        order = self._texts("order", may_be_missing=True)
        for column in order:
            if column not in known:
                raise _Flaw("order", f"{column!r} is none of {', '.join(known)}")
        return Question(
            name=name,
            title=title,
            fact=fact.name,
            filters=filters,
            keys=keys,
            measures=measures,
            rank=rank,
            shown=shown,
            attributes=attributes,
            order=order or tuple(key.name for key in keys),
            chart=self._chart(known),
            stages=self._stages(name, rank, attributes),
            is_builtin=self.is_builtin,
        )

    # -- the keys of a definition, in the order in which they stand

    def _name(self) -> str:
        name = self._text("name")
        pattern = _BUILTIN_NAME if self.is_builtin else _NAME
        if not pattern.fullmatch(name):
            raise _Flaw(
                "name", f"{name[:60]!r}: want a small letter, then up to 39 of a to z, 0 to 9 and _, "
                "such as sales_by_hour"
            )  # fmt: skip
        return name

    def _title(self) -> str:
        title = self._text("title")
        if not title.strip() or len(title) > MOST_TITLE or not title.isprintable():
            raise _Flaw("title", f"want one line of 1 to {MOST_TITLE} characters")
        return title

    def _fact(self) -> LayoutTable:
        fact = self._text("from")
        if fact not in FACTS:
            raise _Flaw("from", f"{fact[:60]!r}: want {' or '.join(FACTS)}")
        return LAYOUT[fact]

    def _filter(self, text: str) -> NamedFilter | Expression:
        fact = self._text("from")
        if text.startswith("@"):
            if text not in _FILTERS:
                raise _Flaw("where", f"{text[:60]!r} is no filter; there are {', '.join(_FILTERS)}")
            if text == "@amount" and "final_amount" not in LAYOUT[fact].by_name:
                raise _Flaw("where", f"@amount is about final_amount, which {fact} does not have")
            return text
        condition = _parsed("where", text, Scope(fact))
        if condition.kind is not Kind.BOOLEAN:
            raise _Flaw("where", f"{text!r} is a {condition.kind.value}; want a condition")
        return condition

    def _named(self, key: str, scope: Scope) -> tuple[Named, ...]:
        given = self.entry.get(key, {})
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
            raise _Flaw(key, 'want { name = "expression", … }')
        if len(given) > _MOST[key]:
            raise _Flaw(key, f"{len(given)} are named; at most {_MOST[key]} are kept")
        return tuple(Named(self._column_name(key, name), _parsed(f"{key}.{name}", text, scope))
                     for name, text in given.items())  # fmt: skip

    def _column_name(self, key: str, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise _Flaw(key, f"{name[:60]!r} is no name; want small letters, digits and _, such as revenue")
        if name in _RESERVED:
            raise _Flaw(key, f"{name} is the name of something else; choose another")
        return name

    def _attributes(
        self,
        shown: Sequence[str],
        keys: Sequence[Named],
        measures: Sequence[Named],
        fact: LayoutTable,
    ) -> tuple[Column, ...]:
        """Columns that are neither key, measure nor rank must be attributes of what a key identifies."""
        own = {*(each.name for each in (*keys, *measures)), RANK}
        identified = {
            table: column
            for column, table in fact.references.items()
            if any(key.expression == Column(fact.name, column, Kind.ID) for key in keys)
        }
        found = [self._attribute(name, identified) for name in shown if name not in own]
        if len(set(found)) < len(found):
            raise _Flaw("columns", "a column is shown twice")
        return tuple(found)

    def _listed(
        self, shown: Sequence[str], fact: LayoutTable
    ) -> tuple[tuple[Named, ...], tuple[Column, ...]]:
        """Of a question that lists rows: columns of the fact, and attributes of what they identify."""
        identified = {table: column for column, table in fact.references.items()}
        keys, attributes = [], []
        for name in shown:
            if (column := fact.by_name.get(name)) is not None:
                keys.append(Named(name, Column(fact.name, name, column.kind)))
            else:
                attributes.append(self._attribute(name, identified))
        if not keys:
            raise _Flaw("columns", f"want at least one column of {fact.name}")
        return tuple(keys), tuple(attributes)

    def _attribute(self, name: str, identified: Mapping[str, str]) -> Column:
        table, _, attribute = name.rpartition(".")
        there = [t for t in identified if attribute in LAYOUT[t].by_name and table in ("", t)]
        if len(there) > 1:
            choices = " or ".join(f"{t}.{attribute}" for t in there)
            raise _Flaw("columns", f"{name} is in several tables; want {choices}")
        if there:
            column = LAYOUT[there[0]].by_name[attribute]
            return Column(there[0], attribute, column.kind, identified[there[0]])
        holders = [t.name for t in LAYOUT.values() if not t.is_fact and attribute in t.by_name]
        hint = ""
        if holders and (ids := self._ids_of(holders)):
            hint = f"; to show it, make {' or '.join(ids)} a key"
        raise _Flaw("columns", f"{name[:60]!r} is no key, no measure and no attribute of a key{hint}")

    def _ids_of(self, tables: Sequence[str]) -> list[str]:
        references = LAYOUT[self._text("from")].references
        return [column for column, table in references.items() if table in tables]

    def _check_names(
        self, keys: Sequence[Named], measures: Sequence[Named], attributes: Sequence[Column]
    ) -> None:
        names = [*(each.name for each in (*keys, *measures)), *(a.name for a in attributes)]
        for name in names:
            if names.count(name) > 1:
                raise _Flaw("columns", f"{name} stands for two things; rename the key or the measure")

    def _rank(self, keys: Sequence[Named], measures: Sequence[Named]) -> Rank | None:
        given = self.entry.get("rank")
        if given is None:
            return None
        if not isinstance(given, Mapping) or set(given) - {"by", "within", "top", "order"}:
            raise _Flaw("rank", 'want { by = "measure", within = ["key", …], top = 3, order = "desc" }')
        if not measures:
            raise _Flaw("rank", "there is no measure to rank by")
        by, within, top = given.get("by"), given.get("within", []), given.get("top")
        if by not in {measure.name for measure in measures}:
            raise _Flaw("rank", f"by = {by!r}: want one of {', '.join(m.name for m in measures)}")
        names = [key.name for key in keys]
        if not isinstance(within, list) or not all(key in names for key in within):
            raise _Flaw("rank", f"within: want some of {', '.join(names)}")
        if top != "@top" and not (type(top) is int and 1 <= top <= MOST_TOP):
            raise _Flaw("rank", f'top = {top!r}: want 1 to {MOST_TOP:,}, or "@top" for the run\'s own')
        if (order := given.get("order", "desc")) not in ("asc", "desc"):
            raise _Flaw("rank", f'order = {order!r}: want "asc" or "desc"')
        return Rank(by, tuple(dict.fromkeys(within)), None if top == "@top" else top, order == "asc")

    def _chart(self, known: Sequence[str]) -> Chart | None:
        given = self.entry.get("chart")
        if given is None:
            return None
        if not isinstance(given, Mapping) or set(given) - {"mark", "x", "y", "color"}:
            raise _Flaw("chart", 'want { mark = "bar", x = "column", y = "column", color = "column" }')
        mark = given.get("mark")
        if mark not in _MARKS:
            raise _Flaw("chart", f"mark = {mark!r}: want one of {', '.join(_MARKS)}")
        drawn = [*known, "count"] if mark == "histogram" else known
        for axis in ("x", "y", "color"):
            if (axis in given or axis != "color") and given.get(axis) not in drawn:
                raise _Flaw("chart", f"{axis} = {given.get(axis)!r}: want one of {', '.join(drawn)}")
        return Chart(mark, given["x"], given["y"], given.get("color", ""))

    def _stages(self, name: str, rank: Rank | None, attributes: Sequence[Column]) -> Stages:
        tables = list(dict.fromkeys(attribute.table for attribute in attributes))
        default = {
            "aggregate": f"agg_{name}",
            "rank": f"{'rank' if rank else 'sum'}_{name}",
            "join": [f"join_{table}_{name}" for table in tables],
        }
        given = self.entry.get("stages", {})
        if not isinstance(given, Mapping) or set(given) - set(default):
            raise _Flaw("stages", 'want { aggregate = "…", rank = "…", join = ["…"] }')
        chosen = default | dict(given)
        joins = chosen["join"]
        names = [chosen["aggregate"], chosen["rank"], *(joins if isinstance(joins, list) else [joins])]
        for stage in names:
            if not isinstance(stage, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,79}", stage):
                raise _Flaw("stages", f"{stage!r} is no name of a stage")
        if len(joins) != len(tables):
            raise _Flaw("stages", f"join: want a name for each of {', '.join(tables) or 'no table'}")
        return Stages(chosen["aggregate"], chosen["rank"], tuple(joins))

    # -- values of the right shape

    def _text(self, key: str) -> str:
        text = self.entry.get(key)
        if not isinstance(text, str):
            raise _Flaw(key, "is missing" if text is None else "want a text")
        return text

    def _texts(self, key: str, *, may_be_missing: bool = False) -> tuple[str, ...]:
        given = self.entry.get(key, [] if may_be_missing else None)
        if given is None:
            raise _Flaw(key, f'is missing; want {key} = ["…"]')
        if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
            raise _Flaw(key, "want a list of texts")
        if not given and not may_be_missing:
            raise _Flaw(key, "is empty")
        if len(given) > _MOST[key]:
            raise _Flaw(key, f"{len(given)} are named; at most {_MOST[key]} are kept")
        if twice := [text for text in given if given.count(text) > 1]:
            raise _Flaw(key, f"{twice[0][:60]!r} stands there twice")
        return tuple(given)


def _parsed(key: str, text: str, scope: Scope) -> Expression:
    try:
        return parse(text, scope)
    except QuestionError as error:
        raise _Flaw(key, str(error)) from None


def _line_of(text: str, position: int, key: str) -> int:
    """Where the key of the n-th question stands; where the question begins, if the key is not there."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*question\s*\]\]", line)]
    if position >= len(begins):
        return 1
    begin = begins[position]
    end = begins[position + 1] if position + 1 < len(begins) else len(lines)
    top, _, name = key.partition(".")
    patterns = [rf"\s*\[\s*question\.{top}\s*\]", rf"\s*{re.escape(top)}\s*="]
    if name:
        patterns.insert(0, rf"\s*{re.escape(name)}\s*=")
    for pattern in patterns:
        for number in range(begin, end):
            if re.match(pattern, lines[number]):
                return number + 1
    return begin + 1
