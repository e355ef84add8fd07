"""Renders drawings as SVG, PNG and PDF in a worker process, and rebuilds the engine's SVG from a closed list.

The worker process (`worker`) runs the engine and calls `clean_svg`, which drops elements and attributes that
are not on the list and inserts texts as text: an SVG cannot load, link or run anything, whatever its names.
"""

import base64
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from kopitiam.contracts.errors import ServiceError
from kopitiam.results.charts.canvas import FONT
from kopitiam.results.charts.colours import class_rules, colour, colour_name, variables
from kopitiam.results.names import FONT_SIZE
from kopitiam.system.worker_processes import Message, WorkerProcesses, WorkersDied

if TYPE_CHECKING:
    from kopitiam.results.charts.drawing import Drawing  # the worker process must start fast

COMMAND = (sys.executable, "-m", "kopitiam.results.charts.worker")
ImageForm = Literal["png", "pdf"]
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
_TEXT_NUMBER = re.compile(r"@(\d+)")
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
_SIZE = re.compile(r"0 0 [\d.]+ [\d.]+")
_PLAIN = re.compile(r"[-#%.,\s\w()]*")  # no reference and no escape fits into this
_REFERENCE = re.compile(r"url|var", re.IGNORECASE)
STYLE = (
    f"svg {{ {variables('light')} }} "
    f"@media (prefers-color-scheme: dark) {{ svg {{ {variables('dark')} }} }}\n{class_rules('svg')}"
)


class RenderingError(ServiceError):
    """The engine failed on a drawing; the message says how."""


class Renderer:
    """One worker process that renders all charts of a gateway; it starts with the first chart."""

    def __init__(self) -> None:
        self._workers = WorkerProcesses(lambda: COMMAND, 1)

    def svg(self, drawing: "Drawing") -> str:
        """SVG for a page. The same drawing gives the same bytes on every machine.

        Raises RenderingError if the engine fails on it.
        """
        order = {
            "specification": drawing.specification,
            "texts": drawing.texts,
            "description": drawing.description,
        }
        return str(self._request(order)["svg"])

    def image(self, svg: str, form: ImageForm) -> bytes:
        """The SVG as an image in light colours. The machine's fonts serve letters that the engine's lacks."""
        return base64.b64decode(self._request({"svg": svg, "form": form})["bytes"])

    @property
    def pids(self) -> set[int]:
        return self._workers.pids

    def close(self) -> None:
        self._workers.close()

    def _request(self, order: Message) -> Message:
        try:
            answer = self._workers.ask(order)
        except WorkersDied:
            raise RenderingError("the chart takes more memory or time than a chart may") from None
        if "error" in answer:
            raise RenderingError(f"the chart cannot be drawn: {answer['error']}")
        return answer


@contextmanager
def open_renderer() -> Iterator[Renderer]:
    """A renderer that is closed at the end of the block."""
    renderer = Renderer()
    try:
        yield renderer
    finally:
        renderer.close()


def clean_svg(drawn: str, texts: Sequence[str], description: str) -> str:
    """The engine's SVG rebuilt for a page, with texts in place of their numbers.

    Colours are classes, with the light values beside them. Raises ValueError for an SVG without a size.
    """
    root = ElementTree.fromstring(drawn)  # noqa: S314 - of our own engine, in a process of its own
    size = root.get("viewBox", "")
    if not _SIZE.fullmatch(size):
        raise ValueError(f"an SVG without a size: {size[:40]!r}")
    _, _, width, height = size.split()
    svg = Element("svg", {"xmlns": _NAMESPACE, "class": "chart", "viewBox": size, "role": "img"})
    svg.set("width", width)
    svg.set("height", height)
    svg.set("aria-label", description)
    svg.set("font-family", FONT)
    svg.set("font-size", f"{FONT_SIZE}px")
    ground = {"class": "f-ground", "fill": colour("ground"), "d": f"M0,0h{width}v{height}h-{width}Z"}
    SubElement(svg, "path", ground)
    for child in root:
        _copy(child, svg, texts)
    return ElementTree.tostring(svg, encoding="unicode")


def standalone_svg(svg: str) -> str:
    """The same SVG as a file of its own: it follows the light or dark theme of the viewer."""
    head, body = svg.split(">", 1)
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
    if title := _text_for(element.get("aria-label", ""), texts):
        SubElement(copy, "title").text = title
    if tag == "text":
        inserted = _text_for(element.text or "", texts)
        text = element.text or "" if inserted is None else inserted
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
    """Whether nothing of the element can be seen, such as the background of a group."""
    if tag == "rect":
        return True  # the background of the whole SVG; `clean_svg` adds its own
    is_painted = any(element.get(name, "none") != "none" for name in ("fill", "stroke"))
    return element.get("display") == "none" or (tag == "path" and not is_painted)


def _attributes(element: Element) -> dict[str, str]:
    kept: dict[str, str] = {}
    classes = []
    for name, value in element.attrib.items():
        if name not in ATTRIBUTES or (name, value) in _DEFAULTS:
            continue
        if (colour_of := colour_name(value)) is not None and name in {"fill", "stroke"}:
            classes.append(f"{name[0]}-{colour_of}")
            kept[name] = colour(colour_of)
        elif _PLAIN.fullmatch(value) and not _REFERENCE.search(value):
            kept[name] = _LONG_NUMBER.sub(_rounded, value)
    return {"class": " ".join(classes), **kept} if classes else kept


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _text_for(label: str, texts: Sequence[str]) -> str | None:
    """The text whose number a label is: `@12`. None for any other label."""
    match = _TEXT_NUMBER.fullmatch(label)
    return texts[int(match[1])] if match and int(match[1]) < len(texts) else None
