"""Lines in columns that are never cut: where they do not fit, cells of one line stand below each other."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kopitiam.cli.bars import name_text

_GAP = "  "


def in_columns(
    console: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    figures: AbstractSet[int],
    indent: int = 0,
) -> Iterator[Text]:
    """`figures` are the columns that are set to the right. A pipe gets whole lines, however long."""
    clean = [[name_text(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *clean, strict=True)]
    margin = " " * indent
    if console.is_terminal and indent + sum(widths) + len(_GAP) * (len(widths) - 1) > console.width:
        yield from _stacked(titles, clean, margin)
        return
    yield Text(margin + _line(titles, widths, figures), "bold")
    for row in clean:
        yield Text(margin + _line(row, widths, figures))


def _stacked(titles: Sequence[str], rows: Sequence[Sequence[str]], margin: str) -> Iterator[Text]:
    for first, *others in rows:
        yield Text(margin + first, "bold")
        yield from (
            Text(f"{margin}{_GAP}{title} {cell}")
            for title, cell in zip(titles[1:], others, strict=True)
            if cell
        )


def _line(cells: Sequence[str], widths: Sequence[int], figures: AbstractSet[int]) -> str:
    padded = []
    for position, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if position in figures else cell + space)
    return _GAP.join(padded).rstrip()
