"""Words of refusals: one line, bounded, with the key that is wrong and the name that was probably meant."""

from collections.abc import Sequence
from difflib import get_close_matches

from kopitiam.contracts.errors import QuestionError

MOST_REASON = 400


class DefinitionError(QuestionError):
    """What is wrong with one key of a definition; the key tells where it stands in a file."""

    def __init__(self, key: str, reason: str, question: str = "") -> None:
        super().__init__(one_line(f"{f'question {question}, ' if question else ''}{key}: {reason}"))
        self.key, self.reason = key, reason

    def with_question(self, name: str) -> "DefinitionError":
        return DefinitionError(self.key, self.reason, name)


def one_line(text: str, most: int = MOST_REASON) -> str:
    """The text with unprintable characters replaced and its end cut off, as far as that is needed."""
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean …?` if a known name is close to this one."""
    found = get_close_matches(name[:60], known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def shown(value: object) -> str:
    """A value of any type, as far as it fits into a sentence."""
    return repr(value)[:60]
