"""Figures with small bars beside them, as wide as the terminal allows; where it is narrow, figures only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_WIDEST, _NARROWEST = 30, 6
_GAP = 2
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Figure:
    """`names` say what it is about, `shown` is exact, `size` is only for the bar."""

    names: tuple[str, ...]
    shown: str
    size: float


def show_barred(
    console: Console, figures: Sequence[Figure], indent: int = 2, beside: Sequence[Figure] | None = None
) -> None:
    for line in barred(console, figures, indent, beside):
        console.print(line, soft_wrap=True)


def barred(
    console: Console,
    figures: Sequence[Figure],
    indent: int = 2,
    beside: Sequence[Figure] | None = None,
    most: float | None = None,
) -> Iterator[Text]:
    """All of a figure is shown, or it would be another one: where it does not fit, it has its own line.

    `beside` are all figures that stand below each other in several blocks, these included; the largest of
    them, or `most`, has the longest bar.
    """
    if not figures:
        return
    beside = beside or figures
    most = max(figure.size for figure in beside) if most is None else most
    shown = max(len(figure.shown) for figure in beside)
    names = [
        max(cell_len(printable(name)) for name in of) for of in zip(*(f.names for f in beside), strict=True)
    ]
    room = console.width - indent - sum(names) - shown - _GAP * len(names)
    for figure in figures:
        padded = (_padded(printable(name), width) for name, width in zip(figure.names, names, strict=True))
        line = Text(" " * indent + "".join(padded))
        if room < 0 and console.is_terminal:
            line.rstrip()
            line.append("\n" + " " * (indent + _GAP) + figure.shown)
        else:
            line.append(figure.shown.rjust(shown))
        if room >= _NARROWEST + _GAP:
            line.append(" " * _GAP)
            line.append(bar(figure.size, most, min(_WIDEST, room - _GAP), console), "cyan")
        yield line


def bar(size: float, most: float, width: int, console: Console) -> str:
    """To an eighth of a letter; in whole letters where the terminal knows no others."""
    share = max(0.0, min(1.0, size / most)) if most > 0 else 0.0
    if console.options.ascii_only:
        return "#" * round(share * width)
    whole, rest = divmod(round(share * width * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def printable(text: str) -> str:
    """What a name must not do to a terminal, it does not do."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _padded(name: str, width: int) -> str:
    return name + " " * (width - cell_len(name) + _GAP)
