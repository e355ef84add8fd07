"""Makes names printable and fits them into a width. Clients send names of any length, script and character.

Widths are estimated: measured ones would depend on the fonts of the machine.
"""

import re
import unicodedata

ELLIPSIS = "…"
FONT_SIZE = 12
MOST_SHOWN = 120  # code points, since some have no width
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_ISOLATES = "\u2066\u2067\u2068"
_JOINER = "\u200d"
_WORD_JOINER = "\u2060"  # invisible, and kept by all programs
# Spreadsheets skip blanks before these characters; East Asian ones also accept the wide forms.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
# Control characters and others that XML forbids. Line ends and tabs become blanks.
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ud800-\udfff]")
_BLANKS = re.compile("[\t-\r\x85\u2028\u2029]")
_NARROW = frozenset("iljtfrI.,;:'|!()[] ·-")
_BROAD = frozenset("mwMW@%—…")
_EM = {"narrow": 0.34, "digit": 0.62, "small": 0.6, "capital": 0.74, "broad": 0.98, "wide": 1.1}  # of Inter


def printable(text: str) -> str:
    """The text without control characters, valid in XML and HTML."""
    return _UNPRINTABLE.sub("\ufffd", _BLANKS.sub(" ", text))


def without_formula(text: str) -> str:
    """The text, with an invisible character in front if a spreadsheet would run it as a formula."""
    return f"{_WORD_JOINER}{text}" if _FORMULA.match(text) else text


def isolated(text: str) -> str:
    """The text in Unicode isolates, so that its direction does not affect the text around it.

    Isolates inside the text are balanced, or they would end the outer one or run past it. Plain ASCII is
    returned unchanged.
    """
    if text.isascii():
        return text
    return f"{_FIRST_STRONG_ISOLATE}{_balanced(text)}{_POP_ISOLATE}"


def _balanced(text: str) -> str:
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == _POP_ISOLATE and depth == 0:
            continue
        depth += (character in _ISOLATES) - (character == _POP_ISOLATE)
        kept.append(character)
    return "".join(kept) + _POP_ISOLATE * depth


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """The estimated width in pixels, rather too large than too small."""
    return size * sum(map(_em, text))


class MarkedName(str):
    """A name with a mark that distinguishes it from equal ones; `fitted` cuts the name and keeps the mark."""

    mark: str

    def __new__(cls, name: str, mark: str) -> "MarkedName":
        marked = super().__new__(cls, f"{name} {mark}")
        marked.mark = f" {mark}"
        return marked


def fitted(text: str, room: float, size: float = FONT_SIZE) -> str:
    """The text, cut with an ellipsis to at most `room` pixels."""
    if isinstance(text, MarkedName) and text_width(text, size) > room:
        mark = printable(text.mark)
        return fitted(text[: -len(mark)], room - text_width(mark, size), size) + mark
    text = printable(text)
    if len(text) <= MOST_SHOWN and text_width(text, size) <= room:
        return text
    remaining = room / size - _em(ELLIPSIS)
    end = 0
    for character in text[: MOST_SHOWN - 1]:
        remaining -= _em(character)
        if remaining < 0:
            break
        end += 1
    while end > 0 and _continues(text, end):
        end -= 1
    return text[:end].rstrip() + ELLIPSIS


def _em(character: str) -> float:
    if character in _NARROW:
        return _EM["narrow"]
    if character in _BROAD:
        return _EM["broad"]
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return _EM["wide"]
    if character.isdigit():
        return _EM["digit"]
    return _EM["capital"] if character.isupper() else _EM["small"]


def _continues(text: str, at: int) -> bool:
    """Whether a cut here would separate an accent from its letter, or split a joined emoji."""
    return unicodedata.category(text[at]) in {"Mn", "Me", "Mc", "Cf"} or text[at - 1] == _JOINER
