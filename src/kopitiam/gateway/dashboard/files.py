"""The files of the page as they are sent: read once, compressed once, named after what is in them."""

import functools
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kopitiam.results.charts.colours import NAMES, class_rules, colour

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CHART_COLOURS = "charts.css"
_STAMP = b"{{stamp}}"
_KINDS = {".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
_WORTH_COMPRESSING = 512


@dataclass(frozen=True)
class PageFile:
    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str


@functools.cache
def stamp() -> str:
    """Changes with any of the files, so that a browser may keep what it has under an old one for ever."""
    whole = hashlib.sha256()
    for content in _contents().values():
        whole.update(content)
    return whole.hexdigest()[:12]


@functools.cache
def page_file(name: str) -> PageFile | None:
    """Only names that are in the package are files; nothing becomes a path."""
    content = _contents().get(name)
    if content is None:
        return None
    if name == INDEX:
        content = content.replace(_STAMP, stamp().encode())
    suffix = PurePosixPath(name).suffix
    kind = _KINDS.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, mtime=0) if len(content) > _WORTH_COMPRESSING else None
    return PageFile(content, compressed, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


@functools.cache
def _contents() -> dict[str, bytes]:
    paths = {str(path.relative_to(STATIC)): path for path in sorted(STATIC.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items()} | {
        CHART_COLOURS: _chart_colours().encode()
    }


def _chart_colours() -> str:
    """The colours of charts, by day and by night."""
    pairs = " ".join(f"--chart-{name}: light-dark({colour(name)}, {colour(name, 'dark')});" for name in NAMES)
    return f":root {{ {pairs} }}\n{class_rules('.chart')}\n"
