"""A chart as a still picture: SVG for paper and for pages without scripts.

Reads the same Vega-Lite files as the dashboard, of which it knows what ours use: bars, alone or in groups,
with a label at their end, and a histogram. Colours are classes: the page's style sheet has day and night.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from kopitiam.results.charts.rows import MAX_BAR_LABEL, Row

WIDTH = 720
CHANNELS = frozenset({"x", "x2", "y", "yOffset", "color", "text", "tooltip"})
MARKS = frozenset({"bar", "text"})
COLOURS = 8
_TICKS = 5  # about
_LETTER = 6.7  # pixels, about, of the 12 that a line is high
_LINE, _GAP, _FOOT = 18, 6, 40
_TALL, _LEFT, _RIGHT = 240.0, 64.0, WIDTH - 24.0  # of the histogram
_TALLEST = 1.2 * WIDTH  # that still can be read when a page of paper holds it all
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def still_chart(spec: dict[str, Any], rows: list[Row]) -> str:
    is_binned = "bin" in spec["encoding"]["x"]
    return _Histogram(spec, rows).draw() if is_binned else _Bars(spec, rows).draw()


@dataclass(frozen=True)
class _Scale:
    """From the figures of an axis to pixels, always with zero."""

    low: float
    high: float
    step: float  # from one tick to the next
    begin: float
    end: float

    @classmethod
    def of(cls, channel: dict[str, Any], rows: list[Row], begin: float, end: float) -> "_Scale":
        figures = [0.0, *(row[channel["field"]] for row in rows)]
        low, high = min(figures), max(figures)
        step = max(_round_step((high - low) / _TICKS), channel["axis"].get("tickMinStep", 0))
        if channel.get("scale", {}).get("nice", True):
            low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        return cls(low, high if high > low else low + step, step, begin, end)

    def __call__(self, figure: float) -> float:
        share = (figure - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [number * self.step for number in range(first, last + 1)]


@dataclass(frozen=True)
class _Bars:
    """Lying bars, one below the other; those of one group share its label."""

    spec: dict[str, Any]
    rows: list[Row]

    @cached_property
    def _encoding(self) -> dict[str, Any]:
        """Of all layers: what they share, the colour of the bars and the text of the labels."""
        encoding: dict[str, Any] = dict(self.spec["encoding"])
        for layer in self.spec["layer"]:
            encoding |= layer.get("encoding", {})
        return encoding

    @cached_property
    def _groups(self) -> list[str]:
        return self._distinct("y")

    @cached_property
    def _offsets(self) -> list[Any]:
        """The bars of a group, from the top."""
        return sorted(self._distinct("yOffset")) or [None]

    @cached_property
    def _shades(self) -> list[str]:
        return self._distinct("color")

    @property
    def _has_legend(self) -> bool:
        return self._encoding.get("color", {}).get("legend") is not None

    @property
    def _top(self) -> float:
        return 28.0 if self._has_legend else 4.0

    @property
    def _band(self) -> int:
        return _LINE * len(self._offsets) + _GAP

    @property
    def _bottom(self) -> float:
        return self._top + self._band * len(self._groups)

    @cached_property
    def _scale(self) -> _Scale:
        """Leaves room for the names on its left and for the labels on its right."""
        names = max(len(str(group)) for group in self._groups)
        labels = max(len(self._of(row, "text")) for row in self.rows)
        left, right = (_LETTER * min(MAX_BAR_LABEL, longest) for longest in (names, labels))
        return _Scale.of(self._encoding["x"], self.rows, left + 10, WIDTH - 12 - right)

    def _of(self, row: Row, channel: str) -> Any:
        return row[self._encoding[channel]["field"]]

    def _distinct(self, channel: str) -> list[Any]:
        return list(dict.fromkeys(self._of(row, channel) for row in self.rows if channel in self._encoding))

    def draw(self) -> str:
        parts = [*self._legend(), *self._axis(), *map(self._name, self._groups), *map(self._bar, self.rows)]
        return _svg(self.spec["description"], self._bottom + _FOOT, parts)

    def _legend(self) -> Iterable[str]:
        place = self._scale.begin
        for number, shade in enumerate(self._shades if self._has_legend else ()):
            yield f'<rect class="c{number % COLOURS}" x="{place:.1f}" y="4" width="12" height="12"/>'
            yield _text(place + 18, 14, str(shade))
            place += 36 + _LETTER * len(str(shade))

    def _axis(self) -> Iterable[str]:
        scale, bottom = self._scale, self._bottom
        for tick in scale.ticks:
            x = scale(tick)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{self._top:.1f}" y2="{bottom:.1f}"/>'
            yield _text(x, bottom + 16, _tick(tick), "middle")
        yield _text((scale.begin + scale.end) / 2, bottom + 34, self._encoding["x"]["title"], "middle")

    def _name(self, group: str) -> str:
        middle = self._top + self._band * (self._groups.index(group) + 0.5)
        return _text(self._scale.begin - 8, middle + 4, _short(str(group)), "end", str(group))

    def _bar(self, row: Row) -> str:
        line = self._offsets.index(self._of(row, "yOffset")) if "yOffset" in self._encoding else 0
        y = self._top + self._band * self._groups.index(self._of(row, "y")) + _GAP / 2 + line * _LINE
        zero, end = self._scale(0), self._scale(self._of(row, "x"))
        shade = self._shades.index(self._of(row, "color")) % COLOURS if self._shades else 0
        return (
            f"<g><title>{_said(self._encoding['tooltip'], row)}</title>"
            f'<rect class="c{shade}" x="{min(zero, end):.1f}" y="{y + 1:.1f}" '
            f'width="{abs(end - zero):.1f}" height="{_LINE - 2}"/>'
            f"{_text(max(zero, end) + 6, y + 13, _short(self._of(row, 'text')))}</g>"
        )


@dataclass(frozen=True)
class _Histogram:
    """Standing bars between the bounds of their bins."""

    spec: dict[str, Any]
    rows: list[Row]

    def draw(self) -> str:
        parts = [*self._heights(), *map(self._bar, self.rows), *self._bounds()]
        return _svg(self.spec["description"], _TALL + _FOOT, parts)

    @cached_property
    def _scale(self) -> _Scale:
        return _Scale.of(self.spec["encoding"]["y"], self.rows, _TALL, 8)

    def _of(self, row: Row, channel: str) -> float:
        return float(row[self.spec["encoding"][channel]["field"]])

    def _place(self, amount: float) -> float:
        begin, end = self._of(self.rows[0], "x"), self._of(self.rows[-1], "x2")
        return _LEFT + (amount - begin) / (end - begin) * (_RIGHT - _LEFT)

    def _heights(self) -> Iterable[str]:
        for tick in self._scale.ticks:
            y = self._scale(tick)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(_LEFT - 8, y + 4, _tick(tick), "end")
        title = self.spec["encoding"]["y"]["title"]
        yield f'<text text-anchor="middle" transform="translate(16 {_TALL / 2}) rotate(-90)">{title}</text>'

    def _bounds(self) -> Iterable[str]:
        """As many as there is room for."""
        bounds = [*(self._of(row, "x") for row in self.rows), self._of(self.rows[-1], "x2")]
        letters = max(len(_plain(bound)) for bound in bounds) + 2
        every = math.ceil(len(bounds) * letters * _LETTER / (_RIGHT - _LEFT))
        for bound in bounds[::every]:
            yield _text(self._place(bound), _TALL + 16, _plain(bound), "middle")
        yield _text((_LEFT + _RIGHT) / 2, _TALL + 34, self.spec["encoding"]["x"]["title"], "middle")

    def _bar(self, row: Row) -> str:
        left, right = self._place(self._of(row, "x")), self._place(self._of(row, "x2"))
        top = self._scale(self._of(row, "y"))
        return (
            f"<g><title>{_said(self.spec['encoding']['tooltip'], row)}</title>"
            f'<rect class="c0" x="{left + 0.5:.1f}" y="{top:.1f}" '
            f'width="{right - left - 1:.1f}" height="{_TALL - top:.1f}"/></g>'
        )


def _svg(description: str, height: float, parts: Iterable[str]) -> str:
    shape = "chart tall" if height > _TALLEST else "chart"
    size = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    return f'<svg class="{shape}" role="img" aria-label="{escape(description)}" {size}>{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", whole: str | None = None) -> str:
    title = f"<title>{escape(whole)}</title>" if whole is not None and whole != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}{title}</text>'


def _said(tooltip: list[dict[str, str]], row: Row) -> str:
    return escape(", ".join(f"{told['title']}: {row[told['field']]}" for told in tooltip))


def _short(text: str) -> str:
    return text if len(text) <= MAX_BAR_LABEL else f"{text[: MAX_BAR_LABEL - 1]}…"


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, no smaller than `least`."""
    if least <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(least))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= least * 0.999999)


def _tick(figure: float) -> str:
    """`1.5M`, as Vega's `~s`."""
    for size, prefix in _PREFIXES:
        if abs(figure) >= size * 0.999999:
            return f"{_plain(figure / size)}{prefix}"
    return _plain(figure)


def _plain(figure: float) -> str:
    text = f"{figure:,.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
