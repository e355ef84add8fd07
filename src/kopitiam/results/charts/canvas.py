"""Builds the Vega-Lite specification of a chart, layer by layer, in a frame whose size is computed here.

The specification has only numbers of texts (`@12`); `rendering` inserts the texts into the SVG. Names never
reach the drawing engine, and no width depends on the fonts of the machine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kopitiam.results.charts.colours import colour_variable
from kopitiam.results.names import FONT_SIZE, fitted, isolated, printable, text_width

WIDTH = 860
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the engine brings the first one
LINE = 18  # pixels between lines of text
_LEGEND_ENTRY = 190  # pixels at most
_SWATCH = 11
_TICKS = 5
_TICK_TEXT = (  # `250k`, `1.2M`, `3B`, `0.25`
    "abs(datum.value) < 1000 ? format(datum.value, ',.4~f') : replace(format(datum.value, '~s'), 'G', 'B')"
)
_CAPTION_SIZE = 11.5

Spec = dict[str, Any]
Place = Literal["start", "middle", "end"]
_ALIGN: dict[Place, str] = {"start": "left", "middle": "center", "end": "right"}


@dataclass(frozen=True)
class Label:
    """A text at a place in pixels from the upper left corner of the plot; `whole` is shown on hover."""

    text: str
    x: float
    y: float
    anchor: Place = "start"
    whole: str = ""
    is_soft: bool = False


@dataclass(frozen=True)
class Box:
    """A bar or a cell: two figures to scale, two edges in pixels."""

    begin: float
    end: float
    near: float
    far: float
    colour: str
    hover: str
    is_open: bool = False  # without an end; the outline is dashed


@dataclass
class Canvas:
    """A chart in progress. `scaled` is the axis of figures, if there is one; everything else is in pixels."""

    scaled: Literal["x", "y"] | None
    title: str  # of the axis of figures
    below: str = ""  # title of the labels below the plot
    left: float = 12
    right: float = 12
    height: float = 300
    top: float = 0
    domain: tuple[float, float] | None = None  # of the figures; by default round numbers around them
    is_whole: bool = False  # whether only whole figures have a tick
    layers: list[Spec] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    caption: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Width of the plot, without the margins."""
        return WIDTH - self.left - self.right

    def at(self, figure: float) -> float:
        """Pixels of a figure from the left edge of the plot, on a horizontal axis with a domain."""
        low, high = self.domain or (0.0, 1.0)
        return (figure - low) / (high - low) * self.width

    def add_text(self, text: str) -> str:
        """Stores a text and returns its number for the specification."""
        self.texts.append(printable(text))
        return f"@{len(self.texts) - 1}"

    def add_legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Adds texts and their colours in lines above the plot."""
        lines: list[list[tuple[float, str, str]]] = [[]]
        place = 0.0
        for text, colour in entries:
            room = min(_LEGEND_ENTRY, text_width(printable(text)))
            if place + room > self.width and lines[-1]:
                lines.append([])
                place = 0.0
            lines[-1].append((place, text, colour))
            place += room + _SWATCH + 24
        begin = -LINE * len(lines) - 10
        self.top += LINE * len(lines) + 10
        boxes: list[Spec] = []
        labels: list[Label] = []
        for number, line in enumerate(lines):
            y = begin + LINE * number + LINE / 2
            for x, text, colour in line:
                boxes.append(
                    {"x": x, "x2": x + _SWATCH, "y": y - _SWATCH / 2, "y2": y + _SWATCH / 2, "c": colour}
                )
                labels.append(Label(fitted(text, _LEGEND_ENTRY), x + _SWATCH + 6, y, whole=text))
        self._add_cells(boxes, {"aria": False})
        self.add_labels(labels)

    def add_cells(self, cells: Iterable[tuple[float, float, float, float, str, str]]) -> None:
        """Adds cells: left, right, upper and lower edge, colour, hover text."""
        self._add_cells(
            [
                {"x": left, "x2": right, "y": upper, "y2": lower, "c": colour, "h": self.add_text(hover)}
                for left, right, upper, lower, colour, hover in cells
            ],
            {},
            description=_text("h"),
        )

    def _add_cells(self, values: Sequence[Spec], mark: Spec, **channels: Spec) -> None:
        encoding = {**_pixels("x", "x2"), **_pixels("y", "y2"), "fill": _colour("c"), **channels}
        self.layers.append(
            {"data": {"values": list(values)}, "mark": {"type": "rect", **mark}, "encoding": encoding}
        )

    def add_labels(self, labels: Sequence[Label]) -> None:
        for anchor in _ALIGN:
            for is_soft in (False, True):
                own = [label for label in labels if (label.anchor, label.is_soft) == (anchor, is_soft)]
                if own:
                    self.layers.append(self._text_layer(own, anchor, is_soft))

    def _text_layer(self, labels: Sequence[Label], anchor: Place, is_soft: bool) -> Spec:
        values = [
            {"x": label.x, "y": label.y, "t": self.add_text(label.text), **self._whole(label)}
            for label in labels
        ]
        colour = colour_variable("soft" if is_soft else "text")
        return {
            "data": {"values": values},
            "mark": {"type": "text", "align": _ALIGN[anchor], "baseline": "middle", "fill": colour},
            "encoding": {**_pixels("x"), **_pixels("y"), "text": _text("t"), "description": _text("h")},
        }

    def _whole(self, label: Label) -> Spec:
        is_short = label.whole and printable(label.whole) != label.text
        return {"h": self.add_text(label.whole) if is_short else ""}

    def add_boxes(self, boxes: Sequence[Box]) -> None:
        across = "y" if self.scaled == "x" else "x"
        for is_open in (False, True):
            values = [
                {
                    "a": box.begin,
                    "b": box.end,
                    "n": box.near,
                    "f": box.far,
                    "c": box.colour,
                    "h": self.add_text(box.hover),
                }
                for box in boxes
                if box.is_open == is_open
            ]
            outline = {"fillOpacity": 0.35, "strokeDash": [5, 4], "strokeWidth": 1.5} if is_open else {}
            encoding = {
                str(self.scaled): self._figures("a"),
                f"{self.scaled}2": {"field": "b"},
                **_pixels(across, f"{across}2", fields=("n", "f")),
                "fill": _colour("c"),
                "description": _text("h"),
            }
            if is_open:
                encoding["stroke"] = _colour("c")
            if values:
                self.layers.append(
                    {"data": {"values": values}, "mark": {"type": "rect", **outline}, "encoding": encoding}
                )

    def _figures(self, name: str) -> Spec:
        least = {"tickMinStep": 1} if self.is_whole else {}
        axis = {"title": None, "labelExpr": _TICK_TEXT, "tickCount": _TICKS, **least}
        scale: Spec = {"zero": True, "nice": True}
        if self.domain is not None:
            scale = {"domain": list(self.domain), "nice": False}
        return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}

    def add_points(self, values: Sequence[Spec], mark: Spec, **channels: Spec) -> None:
        """Adds a line, an area or points: `x` in pixels, `y` to scale."""
        encoding = {**_pixels("x"), "y": self._figures("y"), **channels}
        self.layers.append({"data": {"values": list(values)}, "mark": mark, "encoding": encoding})

    def specification(self) -> Spec:
        """The Vega-Lite specification; its size follows from the margins."""
        bottom = 46.0
        labels = [Label(self.below or self.title, self.width / 2, self.height + 32, "middle", is_soft=True)]
        if self.scaled != "x":
            labels.append(Label(self.title, 0, -self.top - 14, is_soft=True))
            self.top += 24
        lines = [line for sentence in self.caption for line in _lines(sentence)]
        for number, line in enumerate(lines):
            labels.append(
                Label(line, -self.left + 12, self.height + bottom + LINE * number + 8, is_soft=True)
            )
        self.add_labels(labels)
        bottom += LINE * len(lines) + (6 if lines else 0)
        return {
            "width": self.width,
            "height": self.height,
            "padding": {"left": self.left, "right": self.right, "top": self.top + 8, "bottom": bottom},
            "autosize": {"type": "none"},
            "background": None,
            "config": _CONFIG,
            "layer": self.layers,
        }


def named_figure(names: Iterable[str], figure: str, room: float) -> str:
    """`Latte · 3,031`, at most `room` pixels wide: names are cut, the figure is not."""
    texts = list(names)
    remaining = room - text_width(figure) - len(texts) * text_width(" · ")
    share = remaining / max(1, len(texts))
    return " · ".join([*(isolated(fitted(text, max(share, 24))) for text in texts), figure])


def hover_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and exact values that are shown on hover."""
    return "; ".join(f"{name}: {isolated(printable(value))}" for name, value in pairs)


def _lines(sentence: str) -> list[str]:
    lines, line = [], ""
    for word in sentence.split():
        longer = f"{line} {word}".strip()
        if line and text_width(longer, _CAPTION_SIZE) > WIDTH - 24:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line] if line else lines


def _pixels(axis: str, second: str = "", fields: tuple[str, str] | None = None) -> Spec:
    one, other = fields or (axis, second)
    encoding: Spec = {axis: {"field": one, "type": "quantitative", "scale": None, "axis": None}}
    return encoding | {second: {"field": other}} if second else encoding


def _text(name: str) -> Spec:
    return {"field": name, "type": "nominal"}


def _colour(name: str) -> Spec:
    return {"field": name, "type": "nominal", "scale": None, "legend": None}


_CONFIG: Spec = {
    "font": FONT,
    "view": {"stroke": None},
    "text": {"fontSize": FONT_SIZE},
    "axis": {
        "labelColor": colour_variable("text"),
        "gridColor": colour_variable("grid"),
        "domain": False,
        "ticks": False,
        "labelFontSize": FONT_SIZE,
        "labelPadding": 6,
        "labelFlush": False,
        "labelLimit": 0,  # the engine fails on a text that it cuts inside an emoji
        "aria": False,
    },
}
