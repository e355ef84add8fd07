"""The rows behind one row of an answer, as a question that lists them.

They are the rows of the fact that pass the question's conditions and have the row's keys. The question is
asked of the same version of the data set, with the same parameters.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import Named, Question
from kopitiam.questions.expressions import columns_in
from kopitiam.questions.operations import day, instant
from kopitiam.questions.validation import MOST_TITLE, read_definition

NAME = "rows_behind"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_OPERAND = re.compile(r"[a-z_]+(\([a-z_]+\))?")  # needs no parentheses


def rows_behind(question: Question, keys: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    """Returns the definition of a question that lists the rows of the fact behind one row of the answer.

    `keys` are the texts of the row's keys, in their order, as in the answer's CSV file; `kept` are the
    columns of the fact to list. Raises QuestionError if these are no keys of the question, or if a key is
    looked up in another table: conditions of a question read columns of the fact only.
    """
    if len(keys) != len(question.keys):
        names = ", ".join(key.name for key in question.keys) or "none"
        raise QuestionError(f"{len(keys)} keys are given; question {question.name} has: {names}")
    if reason := reason_against(question):
        raise QuestionError(reason)
    conditions = [_has_key(key, text) for key, text in zip(_with_texts(question), keys, strict=True)]
    definition = {
        "name": NAME,
        "title": _title(question, keys),
        "from": question.fact,
        "where": list(dict.fromkeys([*_definition(question).get("where", []), *conditions])),
        "columns": list(kept),
        **({"order": ["created_at"]} if "created_at" in kept else {}),
    }
    read_definition(definition)
    return definition


def reason_against(question: Question) -> str:
    """Returns why the rows behind an answer cannot be selected by its keys; empty if they can."""
    for key in question.keys:
        for column in columns_in(key.expression):
            if column.is_attribute:
                return f"key {key.name} is looked up in {column.table}; no question can select rows by it"
    return ""


def _definition(question: Question) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(question.definition)
    return definition


def _with_texts(question: Question) -> list[tuple[Named, str]]:
    """The keys with their expressions as they are written; those of a list are columns."""
    written = dict(_definition(question).get("by", []))
    return [(key, written.get(key.name, key.name)) for key in question.keys]


def _has_key(key_and_text: tuple[Named, str], cell: str) -> str:
    key, expression = key_and_text
    if not _OPERAND.fullmatch(expression):
        expression = f"({expression})"
    if not cell:
        is_empty = f"{expression} is null"
        return f"{is_empty} or {expression} = ''" if key.kind is Kind.TEXT else is_empty
    return f"{expression} = {_literal(key, cell)}"


def _literal(key: Named, cell: str) -> str:
    """A cell of an answer as a constant of the expression language."""
    try:
        match key.kind:
            case Kind.TEXT:
                return "'" + cell.replace("'", "''") + "'"
            case Kind.DATE:
                return f"date '{day(cell).value}'"
            case Kind.INSTANT:
                return f"timestamp '{instant(cell).value}'"
            case Kind.BOOLEAN:
                return {"true": "true", "false": "false"}[cell]
            case _:
                if not _NUMBER.fullmatch(cell):
                    raise ValueError
                return cell
    except (ValueError, KeyError, QuestionError):
        raise QuestionError(f"key {key.name}: {cell[:40]!r} is not a {key.kind.value}") from None


def _title(question: Question, keys: Sequence[str]) -> str:
    """The question and the keys on one line, as far as there is room."""
    cells = ", ".join(cell or "empty" for cell in keys)
    whole = f"Rows behind {cells}: {question.title}" if cells else f"Rows behind: {question.title}"
    line = "".join(character if character.isprintable() else " " for character in whole)
    return line if len(line) <= MOST_TITLE else f"{line[: MOST_TITLE - 1]}…"
