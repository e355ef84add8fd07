"""Text layout for a terminal: rows with bars, and rows in columns. Nothing is cut off.

A narrow terminal gets rows without bars, or the cells of a row below each other; a pipe gets whole lines.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
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
class BarRow:
    """One row: `names`, the exact figure `shown`, `more` figures, and the `size` of the bar."""

    names: tuple[str, ...]
    shown: str
    size: float
    more: tuple[str, ...] = ()


def print_bars(
    console: Console,
    figures: Sequence[BarRow],
    indent: int = 2,
    beside: Sequence[BarRow] | None = None,
    most: float | None = None,
) -> None:
    for line in bar_lines(console, figures, indent, beside, most):
        console.print(line, soft_wrap=True)


def bar_lines(
    console: Console,
    figures: Sequence[BarRow],
    indent: int = 2,
    beside: Sequence[BarRow] | None = None,
    most: float | None = None,
) -> Iterator[Text]:
    """Lay out rows with bars. Figures that do not fit beside the names go to the next line.

    `beside` are the rows of all blocks that are aligned with each other, these included; the largest of them,
    or `most`, has the longest bar.
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
    """Return a bar, exact to an eighth of a character, or of whole characters on an ASCII terminal."""
    share = max(0.0, min(1.0, size / most)) if most > 0 else 0.0
    if console.options.ascii_only:
        return "#" * round(share * width)
    whole, rest = divmod(round(share * width * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def printable(text: str) -> str:
    """Return the text with control characters replaced, marks of text direction included."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def name_text(name: str) -> str:
    """Return a printable name that does not change the order of the text beside it.

    A name with right-to-left letters would reverse the figure after it, so it is put between Unicode
    isolates, which have no width.
    """
    clean = printable(name)
    if any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in clean):
        return isolated(clean)
    return clean


def _widths(figures: Sequence[BarRow], cells: Callable[[BarRow], tuple[str, ...]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*map(cells, figures), strict=True)]


def _padded(name: str, width: int) -> str:
    return name + " " * (width - cell_len(name) + _GAP)


_SEPARATOR = "  "


def column_lines(
    console: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    figures: AbstractSet[int],
    indent: int = 0,
) -> Iterator[Text]:
    """Lay out rows in columns; `figures` are the columns to align on the right."""
    clean = [[name_text(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *clean, strict=True)]
    margin = " " * indent
    if console.is_terminal and indent + sum(widths) + len(_SEPARATOR) * (len(widths) - 1) > console.width:
        yield from _stacked(titles, clean, margin)
        return
    yield Text(margin + _line(titles, widths, figures), "bold")
    for row in clean:
        yield Text(margin + _line(row, widths, figures))


def _stacked(titles: Sequence[str], rows: Sequence[Sequence[str]], margin: str) -> Iterator[Text]:
    for first, *others in rows:
        yield Text(margin + first, "bold")
        yield from (
            Text(f"{margin}{_SEPARATOR}{title} {cell}")
            for title, cell in zip(titles[1:], others, strict=True)
            if cell
        )


def _line(cells: Sequence[str], widths: Sequence[int], figures: AbstractSet[int]) -> str:
    padded = []
    for position, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if position in figures else cell + space)
    return _SEPARATOR.join(padded).rstrip()
