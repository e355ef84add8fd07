"""A finished picture: what the engine drew, rebuilt from a closed list of elements and attributes.

The texts take their places here, as text. Whatever is not on the lists is left out: a picture cannot load,
link or run anything, whatever its names are.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from kopitiam.results.charts.colours import class_rules, colour, painted, variables
from kopitiam.results.charts.sheet import FONT
from kopitiam.results.names import FONT_SIZE

MEDIA_TYPE = "image/svg+xml"
SHAPES = frozenset({"g", "path", "line", "rect", "text"})
ATTRIBUTES = frozenset(
    {
        "d",
        "fill",
        "fill-opacity",
        "opacity",
        "stroke",
        "stroke-dasharray",
        "stroke-width",
        "text-anchor",
        "transform",
        "x1",
        "x2",
        "y1",
        "y2",
    }
)
_DEFAULTS = frozenset({("opacity", "1"), ("stroke-width", "1"), ("transform", "translate(0,0)"), ("x2", "0")})
_SVG = "{http://www.w3.org/2000/svg}"
_NAMESPACE = "http://www.w3.org/2000/svg"
_HELD = re.compile(r"@(\d+)")
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
_SIZE = re.compile(r"0 0 [\d.]+ [\d.]+")
_PLAIN = re.compile(r"[-#%.,\s\w()]*")  # no reference and no escape fits into this
_REFERENCE = re.compile(r"url|var", re.IGNORECASE)
STYLE = (
    f"svg {{ {variables('light')} }} "
    f"@media (prefers-color-scheme: dark) {{ svg {{ {variables('dark')} }} }}\n{class_rules('svg')}"
)


def finished(drawn: str, texts: Sequence[str], description: str) -> str:
    """The picture for a page. Its colours are classes, with the values of the day beside them."""
    root = ElementTree.fromstring(drawn)  # noqa: S314 - of our own engine, in a process of its own
    size = root.get("viewBox", "")
    if not _SIZE.fullmatch(size):
        raise ValueError(f"a picture without a size: {size[:40]!r}")
    _, _, width, height = size.split()
    picture = Element("svg", {"xmlns": _NAMESPACE, "class": "chart", "viewBox": size, "role": "img"})
    picture.set("width", width)
    picture.set("height", height)
    picture.set("aria-label", description)
    picture.set("font-family", FONT)
    picture.set("font-size", f"{FONT_SIZE}px")
    ground = {"class": "f-ground", "fill": colour("ground"), "d": f"M0,0h{width}v{height}h-{width}Z"}
    SubElement(picture, "path", ground)
    for child in root:
        _copy(child, picture, texts)
    return ElementTree.tostring(picture, encoding="unicode")


def standalone(picture: str) -> str:
    """The same picture as a file: it follows the day and night of the viewer."""
    head, body = picture.split(">", 1)
    return f"{head}><style>{STYLE}</style>{body}"


def _copy(element: Element, parent: Element, texts: Sequence[str]) -> None:
    tag = element.tag.removeprefix(_SVG) if isinstance(element.tag, str) else ""
    if tag not in SHAPES or _is_empty(tag, element):
        return
    attributes = _attributes(element)
    if tag == "g" and not attributes:
        for child in element:
            _copy(child, parent, texts)
        return
    copy = SubElement(parent, tag, attributes)
    if held := _held(element.get("aria-label", ""), texts):
        SubElement(copy, "title").text = held
    if tag == "text":
        words = _held(element.text or "", texts)
        text = element.text or "" if words is None else words
        if len(copy):
            copy[0].tail = text
        else:
            copy.text = text
        return
    for child in element:
        _copy(child, copy, texts)
    if tag == "g" and not len(copy):
        parent.remove(copy)


def _is_empty(tag: str, element: Element) -> bool:
    """Invisible backgrounds and foregrounds of groups."""
    if tag == "rect":
        return True  # only that of the whole picture, which has its own
    is_painted = any(element.get(name, "none") != "none" for name in ("fill", "stroke"))
    return element.get("display") == "none" or (tag == "path" and not is_painted)


def _attributes(element: Element) -> dict[str, str]:
    kept: dict[str, str] = {}
    classes = []
    for name, value in element.attrib.items():
        if name not in ATTRIBUTES or (name, value) in _DEFAULTS:
            continue
        if (painting := painted(value)) is not None and name in {"fill", "stroke"}:
            classes.append(f"{name[0]}-{painting}")
            kept[name] = colour(painting)
        elif _PLAIN.fullmatch(value) and not _REFERENCE.search(value):
            kept[name] = _LONG_NUMBER.sub(_rounded, value)
    return {"class": " ".join(classes), **kept} if classes else kept


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _held(label: str, texts: Sequence[str]) -> str | None:
    match = _HELD.fullmatch(label)
    return texts[int(match[1])] if match and int(match[1]) < len(texts) else None
