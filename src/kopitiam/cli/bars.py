"""Figures with small bars beside them, as wide as the terminal allows; where it is narrow, figures only."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kopitiam.results.names import isolated

_WIDEST, _NARROWEST = 30, 6
_GAP = 2
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})


@dataclass(frozen=True)
class Figure:
    """`names` say what it is about, `shown` is exact, `more` stand beside it, `size` is only for the bar."""

    names: tuple[str, ...]
    shown: str
    size: float
    more: tuple[str, ...] = ()


def show_barred(
    console: Console,
    figures: Sequence[Figure],
    indent: int = 2,
    beside: Sequence[Figure] | None = None,
    most: float | None = None,
) -> None:
    for line in barred(console, figures, indent, beside, most):
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
    names = _widths(beside, lambda figure: tuple(map(name_text, figure.names)))
    shown = _widths(beside, lambda figure: (figure.shown, *figure.more))
    room = console.width - indent - sum(names) - sum(shown) - _GAP * (len(names) + len(shown) - 1)
    for figure in figures:
        padded = (_padded(name_text(name), width) for name, width in zip(figure.names, names, strict=True))
        line = Text(" " * indent + "".join(padded))
        cells = (figure.shown, *figure.more)
        if room < 0 and console.is_terminal:
            line.rstrip()
            line.append("\n" + " " * (indent + _GAP) + (" " * _GAP).join(cells))
        else:
            aligned = (cell.rjust(width) for cell, width in zip(cells, shown, strict=True))
            line.append((" " * _GAP).join(aligned))
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
    """The text with control characters replaced, those that change the direction of text included."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def name_text(name: str) -> str:
    """A name that does not change how a terminal orders what stands beside it.

    Letters that are written from right to left would turn the figure behind them round, so such a name
    stands between Unicode isolates, which take no room.
    """
    clean = printable(name)
    if any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in clean):
        return isolated(clean)
    return clean


def _widths(figures: Sequence[Figure], cells: Callable[[Figure], tuple[str, ...]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*map(cells, figures), strict=True)]


def _padded(name: str, width: int) -> str:
    return name + " " * (width - cell_len(name) + _GAP)
