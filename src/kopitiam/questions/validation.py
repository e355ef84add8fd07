"""Reads and checks one definition, key by key. Every refusal is a `DefinitionError` of one line.

The clauses `rank`, `chart` and `stages` are read in `clauses`; files and lists of definitions in `catalog`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions.clauses import read_chart, read_rank, read_stages
from kopitiam.questions.definition_errors import DefinitionError, nearest
from kopitiam.questions.definitions import (
    FILTERS,
    RANK,
    Named,
    NamedFilter,
    Question,
    Rank,
    matched_name,
)
from kopitiam.questions.expressions import ColumnRef, Expression, columns_in
from kopitiam.questions.layout import FACTS, LAYOUT, LayoutTable
from kopitiam.questions.operations import with_article
from kopitiam.questions.parsing import Scope, no_join_of_facts, parse

MOST_TITLE = 200
MOST_CHARACTERS = 10_000  # of a definition as JSON
MOST: dict[str, int] = {"where": 20, "by": 16, "measure": 32, "columns": 64, "order": 64}
KEYS = ("name", "title", "from", "where", "by", "measure", "rank", "columns", "order", "chart", "stages")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_BUILTIN_NAME = re.compile(r"[0-9](_[0-9])?")
_RESERVED = frozenset({RANK, "run", "count"})
_FILES = frozenset({"charts", "questions", "rejected", "report", "results", "rows", "summary"})
_FILTER_NAMES = frozenset(name.removeprefix("@") for name in FILTERS)


def is_builtin_name(name: object) -> bool:
    """Whether the name is reserved for questions of the catalog."""
    return isinstance(name, str) and _BUILTIN_NAME.fullmatch(name) is not None


def read_definition(entry: Mapping[str, Any], *, is_builtin: bool = False) -> Question:
    """The question that a definition describes. Raises DefinitionError for the first wrong key."""
    try:
        _require_plain(entry)
        return _Definition(entry, is_builtin).question()
    except DefinitionError as error:
        name = entry.get("name")
        is_name = isinstance(name, str) and (_NAME.fullmatch(name) or _BUILTIN_NAME.fullmatch(name))
        raise (error.with_question(str(name)) if is_name else error) from None


def _require_plain(entry: Mapping[str, Any]) -> None:
    """Raises DefinitionError for unknown keys, values that are not JSON, and overlong definitions."""
    for key in entry:
        if key not in KEYS:
            raise DefinitionError(
                str(key)[:40],
                f"is not a known key; expected some of {', '.join(KEYS)}{nearest(str(key), KEYS)}",
            )
    for key, value in entry.items():
        try:
            text = json.dumps(value, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError, RecursionError):
            raise DefinitionError(key, "expected texts, whole numbers, lists and tables of them") from None
        if "\\u0000" in text:
            raise DefinitionError(key, "a text must not have the character NUL")
    if (length := len(json.dumps(entry, ensure_ascii=False))) > MOST_CHARACTERS:
        raise DefinitionError(
            "name", f"the definition has {length:,} characters; at most {MOST_CHARACTERS:,} are allowed"
        )


@dataclass(frozen=True)
class _Definition:
    entry: Mapping[str, Any]
    is_builtin: bool

    def question(self) -> Question:
        name, title, fact = self._name(), self._title(), self._fact()
        filters = tuple(self._filter(text) for text in self._texts("where", may_be_missing=True))
        measures = self._named("measure", Scope(fact.name, is_measure=True))
        keys = self._named("by", Scope(fact.name, may_use_attributes=True))
        if keys and not measures:
            raise DefinitionError(
                "measure", "is missing; a question with by needs a measure, such as count(*)"
            )
        shown = self._texts("columns")
        attributes: tuple[ColumnRef, ...]
        if measures:
            attributes = self._attributes(shown, keys, measures, fact)
        else:
            keys, attributes = self._listed(shown, fact)
        _require_distinct(keys, measures, attributes)
        rank = read_rank(self.entry.get("rank"), keys, measures)
        shown = tuple(text.rpartition(".")[2] for text in shown)
        known = [*(named.name for named in (*keys, *measures)), *(a.name for a in attributes)]
        known += [RANK] if rank is not None and rank.top != 1 else []
        order = self._texts("order", may_be_missing=True)
        for key, columns in (("columns", shown), ("order", order)):
            self._require_known(key, columns, known, rank)
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
            chart=read_chart(self.entry.get("chart"), known),
            stages=read_stages(
                self.entry.get("stages", {}), name, rank, [*_attributes_in(keys), *attributes]
            ),
            is_builtin=self.is_builtin,
            definition=self._as_json(),
        )

    # -- the keys of a definition, in their usual order

    def _name(self) -> str:
        name = self._text("name")
        pattern = _BUILTIN_NAME if self.is_builtin else _NAME
        if not pattern.fullmatch(name):
            raise DefinitionError(
                "name", f"{name[:60]!r}: expected a lowercase letter, then up to 39 of a to z, 0 to 9 and _, "
                "such as sales_by_hour"
            )  # fmt: skip
        if name in _FILES or name.startswith("query_"):
            raise DefinitionError("name", f"{name} is the name of another result file; choose another")
        if name in _FILTER_NAMES:
            raise DefinitionError(
                "name", f"{name} is the name of a filter; choose another, such as by_{name}"
            )
        return name

    def _title(self) -> str:
        title = self._text("title")
        if not title.strip() or len(title) > MOST_TITLE or not title.isprintable():
            raise DefinitionError("title", f"expected one line of 1 to {MOST_TITLE} printable characters")
        return title

    def _fact(self) -> LayoutTable:
        fact = self._text("from")
        if fact not in FACTS:
            raise DefinitionError("from", f"{fact[:60]!r}: expected {' or '.join(FACTS)}")
        return LAYOUT[fact]

    def _filter(self, text: str) -> NamedFilter | Expression:
        fact = self._text("from")
        if text.startswith("@"):
            for name in FILTERS:
                if text == name:
                    if text == "@amount" and "final_amount" not in LAYOUT[fact].by_name:
                        raise DefinitionError(
                            "where", f"@amount filters by final_amount, which {fact} does not have"
                        )
                    return name
            raise DefinitionError(
                "where",
                f"{text[:60]!r} is not a filter; "
                f"expected one of {', '.join(FILTERS)}{nearest(text, FILTERS)}",
            )
        condition = _parsed("where", text, Scope(fact))
        if condition.kind is not Kind.BOOLEAN:
            raise DefinitionError(
                "where", f"{text[:60]!r} is {with_article(condition.kind)}; expected a condition"
            )
        return condition

    def _named(self, key: str, scope: Scope) -> tuple[Named, ...]:
        pairs = self._pairs(key)
        names = [name for name, _ in pairs]
        if len(pairs) > MOST[key]:
            raise DefinitionError(key, f"has {len(pairs)} entries; at most {MOST[key]} are allowed")
        for name in names:
            if names.count(name) > 1:
                raise DefinitionError(key, f"{name[:60]!r} is listed twice")
            if not _NAME.fullmatch(name):
                raise DefinitionError(
                    key,
                    f"{name[:60]!r} is not a valid name; use lowercase letters, digits, _, such as revenue",
                )
            if name in _RESERVED:
                raise DefinitionError(key, f"{name} is a reserved name; choose another")
        return tuple(Named(name, _parsed(f"{key}.{name}", text, scope)) for name, text in pairs)

    def _pairs(self, key: str) -> list[tuple[str, str]]:
        """Names and expressions, given as a table or as a list of pairs."""
        value = self.entry.get(key, {})
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
            raise DefinitionError(key, 'expected { name = "expression", … }')
        return [(name, text) for name, text in pairs]

    def _as_json(self) -> str:
        """The definition as JSON, with `by` and `measure` as lists of pairs.

        Their order matters, and programs may reorder the keys of a JSON object.
        """
        pairs = {key: self._pairs(key) for key in ("by", "measure") if key in self.entry}
        return json.dumps({**self.entry, **pairs}, ensure_ascii=False, sort_keys=True)

    def _attributes(
        self, shown: Sequence[str], keys: Sequence[Named], measures: Sequence[Named], fact: LayoutTable
    ) -> tuple[ColumnRef, ...]:
        """The shown columns that are no key, measure or rank: attributes of a table that a key identifies."""
        own = {*(named.name for named in (*keys, *measures)), RANK}
        identified = {
            table: column
            for column, table in fact.references.items()
            if any(key.expression == ColumnRef(fact.name, column, Kind.ID) for key in keys)
        }
        return tuple(self._attribute(name, identified, own) for name in shown if name not in own)

    def _listed(
        self, shown: Sequence[str], fact: LayoutTable
    ) -> tuple[tuple[Named, ...], tuple[ColumnRef, ...]]:
        """Keys and attributes of a question that lists rows.

        The id of a shown attribute is a key even if it is not shown, since rows are sorted by it.
        """
        identified = {table: column for column, table in fact.references.items()}
        attributes = [
            self._attribute(name, identified, fact.by_name) for name in shown if name not in fact.by_name
        ]
        names = [name for name in shown if name in fact.by_name]
        names += [attribute.reference for attribute in attributes]
        keys = [
            Named(name, ColumnRef(fact.name, name, fact.by_name[name].kind)) for name in dict.fromkeys(names)
        ]
        return tuple(keys), tuple(attributes)

    def _attribute(self, name: str, identified: Mapping[str, str], own: Iterable[str]) -> ColumnRef:
        table, _, attribute = name.rpartition(".")
        tables = [t for t in identified if attribute in LAYOUT[t].by_name and table in ("", t)]
        if len(tables) > 1:
            choices = " or ".join(f"{t}.{attribute}" for t in tables)
            raise DefinitionError("columns", f"{name} is in several tables; write {choices}")
        if tables:
            column = LAYOUT[tables[0]].by_name[attribute]
            return ColumnRef(tables[0], attribute, column.kind, identified[tables[0]])
        if table in FACTS and table != self._text("from"):
            raise DefinitionError("columns", f"{name[:60]!r}: {no_join_of_facts(table, self._text('from'))}")
        holders = [t for t in LAYOUT.values() if not t.is_fact and attribute in t.by_name]
        references = LAYOUT[self._text("from")].references
        ids = [column for column, t in references.items() if t in {holder.name for holder in holders}]
        known = [*own, *(a for t in identified for a in LAYOUT[t].by_name)]
        hint = f"; to show it, make {' or '.join(ids)} a key" if ids else nearest(attribute, known)
        if table == self._text("from") and attribute in LAYOUT[table].by_name:
            hint = f"; write {attribute}"
        raise DefinitionError(
            "columns", f"{name[:60]!r} is not a key, a measure or an attribute of a key{hint}"
        )

    def _require_known(
        self, key: str, columns: Sequence[str], known: Sequence[str], rank: Rank | None
    ) -> None:
        for column in columns:
            if column == RANK and rank is None:
                raise DefinitionError(
                    key, "rank is named, but nothing is ranked; add rank = { by = …, top = … }"
                )
            if column == RANK and rank is not None and rank.top == 1:
                raise DefinitionError(key, "rank is always 1, since top is 1; leave it out")
            if column not in known:
                raise DefinitionError(
                    key, f"{column[:60]!r} is not a column of the answer; expected some of {', '.join(known)}"
                )

    # -- values of the expected type

    def _text(self, key: str) -> str:
        text = self.entry.get(key)
        if not isinstance(text, str):
            raise DefinitionError(
                key, f'is missing; write {key} = "…"' if text is None else "expected a text"
            )
        return text

    def _texts(self, key: str, *, may_be_missing: bool = False) -> tuple[str, ...]:
        texts = self.entry.get(key, [] if may_be_missing else None)
        if texts is None:
            raise DefinitionError(key, f'is missing; write {key} = ["…"]')
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise DefinitionError(key, f'expected a list of texts, such as {key} = ["…"]')
        if not texts and not may_be_missing:
            raise DefinitionError(key, f'is empty; write {key} = ["…"]')
        if len(texts) > MOST[key]:
            raise DefinitionError(key, f"has {len(texts)} entries; at most {MOST[key]} are allowed")
        if twice := [text for text in texts if texts.count(text) > 1]:
            raise DefinitionError(key, f"{twice[0][:60]!r} is listed twice")
        return tuple(texts)


def _require_distinct(
    keys: Sequence[Named], measures: Sequence[Named], attributes: Sequence[ColumnRef]
) -> None:
    """Raises DefinitionError if two columns of the answer share a name; `…_is_matched` columns count too."""
    ids = {a.reference for a in attributes}
    names = [*(named.name for named in (*keys, *measures)), *(a.name for a in attributes)]
    first = {key.expression: key.name for key in reversed(keys)}
    names += [
        matched_name(name)
        for expression, name in first.items()
        if isinstance(expression, ColumnRef) and expression.name in ids
    ]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError("columns", f"two columns are named {name}; rename the key or the measure")


def _is_pair(value: object) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(isinstance(part, str) for part in cast(Sequence[object], value))


def _attributes_in(keys: Sequence[Named]) -> list[ColumnRef]:
    return [column for key in keys for column in columns_in(key.expression) if column.is_attribute]


def _parsed(key: str, text: str, scope: Scope) -> Expression:
    try:
        return parse(text, scope)
    except QuestionError as error:
        raise DefinitionError(key, str(error)) from None
