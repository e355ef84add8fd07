"""The colours of charts by name, each with a value for the light and the dark theme. Paper is light.

A chart refers to names only. In its SVG each name is a class with the light value beside it: a page can
recolour it with a style sheet, and viewers without style sheets show the light theme.
"""

import re
from typing import Literal

Theme = Literal["light", "dark"]
CATEGORIES = 10  # distinct colours, also for colour-blind people
STEPS = 7  # of a heat map, from little to much

_COLOURS: dict[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#1b1917"),
    "text": ("#3d3a36", "#d9d4cd"),
    "soft": ("#6b655d", "#a8a29a"),
    "grid": ("#e4dfd8", "#3a3733"),
    "bar": ("#0072b2", "#56b4e9"),
    "others": ("#b9b3aa", "#6d675f"),
    "c0": ("#0072b2", "#56b4e9"),
    "c1": ("#e69f00", "#e69f00"),
    "c2": ("#009e73", "#2bbd93"),
    "c3": ("#cc79a7", "#e3a1c6"),
    "c4": ("#56b4e9", "#3d8fd1"),
    "c5": ("#d55e00", "#f0803c"),
    "c6": ("#8c7a00", "#f0e442"),
    "c7": ("#767676", "#a3a3a3"),
    "c8": ("#882255", "#c9628f"),
    "c9": ("#44aa99", "#7fd1c4"),
    "h0": ("#e6f0f7", "#22313b"),
    "h1": ("#c5ddec", "#264254"),
    "h2": ("#9cc6df", "#2b5672"),
    "h3": ("#6dabd0", "#306c92"),
    "h4": ("#3f8fbf", "#3a86b5"),
    "h5": ("#1c70a4", "#56a4d3"),
    "h6": ("#0a4f7a", "#8fcdf2"),
}
NAMES = tuple(_COLOURS)
_VARIABLE = re.compile(r"var\(--([a-z0-9]+)\)")


def colour_variable(name: str) -> str:
    """The colour as a chart's specification refers to it."""
    return f"var(--{name})"


def category(number: int) -> str:
    return colour_variable(f"c{number % CATEGORIES}")


def step(number: int) -> str:
    return colour_variable(f"h{number}")


def colour_name(value: str) -> str | None:
    """The name of the colour that an attribute of an SVG refers to; None if it is no colour of ours."""
    match = _VARIABLE.fullmatch(value)
    return match[1] if match and match[1] in _COLOURS else None


def colour(name: str, theme: Theme = "light") -> str:
    return _COLOURS[name][theme == "dark"]


def variables(theme: Theme) -> str:
    """Declarations for a style sheet: `--chart-c0: #0072b2; …`."""
    return " ".join(f"--chart-{name}: {colour(name, theme)};" for name in NAMES)


def class_rules(within: str) -> str:
    """CSS rules that give the classes of a chart the colours that the page sets as variables."""
    rules = (
        f"{within} .{prefix}-{name} {{ {attribute}: var(--chart-{name}); }}"
        for name in NAMES
        for prefix, attribute in (("f", "fill"), ("s", "stroke"))
    )
    return "\n".join(rules)
