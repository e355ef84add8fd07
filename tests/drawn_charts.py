"""Reads a drawn chart: its marks with sizes and tooltips, its texts with positions."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG = "{http://www.w3.org/2000/svg}"
_NUMBER = r"-?\d+(?:\.\d+)?"
_BOX = re.compile(rf"M({_NUMBER}),({_NUMBER})h({_NUMBER})v({_NUMBER})h({_NUMBER})Z")


@dataclass(frozen=True)
class Mark:
    title: str
    left: float
    top: float
    width: float
    height: float
    colour: str
    is_dashed: bool

    def told(self, name: str) -> str:
        """Return a value of the tooltip by its name, without isolates."""
        pairs = dict(part.split(": ", 1) for part in self.title.split("; "))
        return re.sub("[\u2066-\u2069]", "", pairs[name])


@dataclass(frozen=True)
class Text:
    text: str
    x: float
    y: float
    anchor: str
    whole: str | None


class Chart:
    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.width, self.height = map(float, self.root.get("viewBox", "").split()[2:])
        self.marks: list[Mark] = []
        self.texts: list[Text] = []
        self._walk(self.root, 0.0, 0.0)

    @property
    def words(self) -> list[str]:
        return [re.sub("[\u2066-\u2069]", "", text.text) for text in self.texts]

    def mark(self, **told: str) -> Mark:
        [found] = [m for m in self.marks if all(m.told(name) == value for name, value in told.items())]
        return found

    def _walk(self, element: Element, x: float, y: float) -> None:
        tag = element.tag.removeprefix(SVG)
        shift = re.findall(_NUMBER, element.get("transform", ""))
        x, y = x + float(shift[0] if shift else 0), y + float(shift[1] if len(shift) > 1 else 0)
        title = element.findtext(f"{SVG}title")
        if tag == "text":
            own = element.text or (element[0].tail if len(element) else "") or ""
            self.texts.append(Text(own, x, y, element.get("text-anchor", "start"), title))
        elif tag == "path" and title is not None:
            self.marks.append(self._mark(element, x, y, title))
        for child in element:
            self._walk(child, x, y)

    def _mark(self, element: Element, x: float, y: float, title: str) -> Mark:
        box = _BOX.fullmatch(element.get("d", ""))
        left, top, width, height = (float(n) for n in box.groups()[:4]) if box else (0.0, 0.0, 0.0, 0.0)
        return Mark(
            title,
            x + min(left, left + width),
            y + min(top, top + height),
            abs(width),
            abs(height),
            (element.get("class") or "").split(" ")[0].removeprefix("f-"),
            "stroke-dasharray" in element.attrib,
        )
