"""The files of the page as they are sent: read once, compressed once, named after what is in them."""

import functools
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from kopitiam import results

STATIC = Path(__file__).with_name("static")
CHARTS = Path(results.__file__).parent / "charts"
INDEX = "index.html"
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
    for path in _paths().values():
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


@functools.cache
def page_file(name: str) -> PageFile | None:
    """Only names that are in the package are files; nothing becomes a path."""
    path = _paths().get(name)
    if path is None:
        return None
    content = path.read_bytes()
    if name == INDEX:
        content = content.replace(_STAMP, stamp().encode())
    kind = _KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, mtime=0) if len(content) > _WORTH_COMPRESSING else None
    return PageFile(content, compressed, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


@functools.cache
def _paths() -> dict[str, Path]:
    own = {str(path.relative_to(STATIC)): path for path in sorted(STATIC.rglob("*")) if path.is_file()}
    vendored = {
        f"charts/{path.relative_to(CHARTS)}": path
        for path in sorted(CHARTS.rglob("*"))
        if path.suffix in {".js", ".json"}
    }
    return own | vendored
