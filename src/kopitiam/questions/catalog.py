"""Reads definitions from TOML files and from JSON, and the built-in catalog.

Errors name file, line, question and key, and say what to write instead. One definition is checked in
`validation`; a set of questions that are asked together is a `QuestionSet`.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from kopitiam.contracts.errors import QuestionError
from kopitiam.questions.definition_errors import DefinitionError, one_line
from kopitiam.questions.definitions import Question
from kopitiam.questions.validation import is_builtin_name, read_definition

MOST_QUESTIONS = 100
MOST_CHARACTERS = 200_000  # of all definitions in one file or request

Check = Callable[[Question], None]  # raises DefinitionError to refuse a question


@cache
def builtin() -> dict[str, Question]:
    """The questions of the catalog by name."""
    text = files("kopitiam.questions").joinpath("builtin.toml").read_text(encoding="utf-8")
    return {question.name: question for question in read_toml(text, "builtin.toml", is_builtin=True)}


def read_toml(
    text: str, file: str, *, is_builtin: bool = False, check: Check | None = None
) -> list[Question]:
    """The questions of one file. Raises QuestionError with file and line of the first mistake.

    `check` may refuse a question for reasons that its definition does not show.
    """
    _require_short(len(text), file)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise QuestionError(one_line(f"{file}: not TOML: {error}")) from None
    entries = document.pop("question", [])
    if document or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise QuestionError(f"{file}: expected [[question]] entries and nothing else")
    if not entries:
        raise QuestionError(f"{file}: no question is defined; begin one with [[question]]")
    _require_few(len(entries), file)
    questions: list[Question] = []
    for position, entry in enumerate(entries):
        try:
            questions.append(_read(entry, check, is_builtin=is_builtin))
        except DefinitionError as error:
            line = line_of(text, position, error.key)
            raise QuestionError(f"{file}, line {line}: {error}", line) from None
    check_together(questions, file)
    return questions


def read_json(
    definitions: Sequence[Mapping[str, Any]], check: Check | None = None, *, has_builtin: bool = False
) -> list[Question]:
    """The questions of a JSON list. Raises QuestionError with the position of the first mistake.

    With `has_builtin` the list may contain questions of the catalog, recognized by their names.
    """
    _require_few(len(definitions), "definitions")
    questions: list[Question] = []
    length = 0
    for position, entry in enumerate(definitions, start=1):
        if not isinstance(entry, Mapping):
            raise QuestionError(f"definition {position}: expected an object with the keys of a question")
        try:
            is_builtin = has_builtin and is_builtin_name(entry.get("name"))
            questions.append(_read(entry, check, is_builtin=is_builtin))
        except DefinitionError as error:
            raise QuestionError(f"definition {position}: {error}") from None
        length += len(questions[-1].definition)
        _require_short(length, "definitions")
    check_together(questions, "definitions")
    return questions


def check_together(questions: Iterable[Question], place: str) -> None:
    """Raises QuestionError if two questions share a name, or if there are too many."""
    seen: set[str] = set()
    for question in questions:
        if question.name in seen:
            raise QuestionError(f"{place}: two questions are named {question.name}; names must differ")
        seen.add(question.name)
    _require_few(len(seen), place)


def _read(entry: Mapping[str, Any], check: Check | None, *, is_builtin: bool = False) -> Question:
    question = read_definition(entry, is_builtin=is_builtin)
    if check is not None:
        try:
            check(question)
        except DefinitionError as error:
            raise error.with_question(question.name) from None
    return question


def _require_few(count: int, place: str) -> None:
    if count > MOST_QUESTIONS:
        raise QuestionError(f"{place}: {count} questions; at most {MOST_QUESTIONS} are allowed")


def _require_short(length: int, place: str) -> None:
    if length > MOST_CHARACTERS:
        raise QuestionError(f"{place}: {length:,} characters; at most {MOST_CHARACTERS:,} are allowed")


def line_of(text: str, position: int, key: str) -> int:
    """The line of a key of the n-th question, or of the question's header if the key is missing."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*question\s*\]\]", line)]
    if position >= len(begins):
        return 1
    begin = begins[position]
    end = begins[position + 1] if position + 1 < len(begins) else len(lines)
    top, _, name = key.partition(".")
    table = _first(lines, begin, end, rf"\s*\[\s*question\s*\.\s*{re.escape(top)}\s*\]")
    places = [
        _first(lines, begin, end, rf"\s*{re.escape(top)}\s*\.\s*{re.escape(name)}\s*=") if name else None,
        _first(lines, table, end, rf"\s*{re.escape(name)}\s*=") if name and table is not None else None,
        table,
        _first(lines, begin, end, rf"\s*{re.escape(top)}\s*[=.]"),
        begin,
    ]
    return next(place for place in places if place is not None) + 1


def _first(lines: Sequence[str], begin: int, end: int, pattern: str) -> int | None:
    return next((number for number in range(begin, end) if re.match(pattern, lines[number])), None)
