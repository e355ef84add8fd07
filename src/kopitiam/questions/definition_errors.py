"""Errors in definitions: one line of bounded length that names the wrong key and suggests a correction."""

from collections.abc import Sequence
from difflib import get_close_matches

from kopitiam.contracts.errors import QuestionError

MOST_REASON = 400


class DefinitionError(QuestionError):
    """One key of a definition is wrong. `key` lets readers of files find the line."""

    def __init__(self, key: str, reason: str, question: str = "") -> None:
        super().__init__(one_line(f"{f'question {question}, ' if question else ''}{key}: {reason}"))
        self.key, self.reason = key, reason

    def with_question(self, name: str) -> "DefinitionError":
        """The same error, with the name of the question."""
        return DefinitionError(self.key, self.reason, name)


def one_line(text: str, most: int = MOST_REASON) -> str:
    """The text on one line: unprintable characters replaced, cut to `most` characters."""
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean …?` if a known name is similar, else an empty text."""
    matches = get_close_matches(name[:60], known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def shown(value: object) -> str:
    """A value of any type, cut to fit into a sentence."""
    return repr(value)[:60]
