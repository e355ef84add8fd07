"""Serves the files of the dashboard, which are read and compressed once.

They hold no data: the page fetches all that it shows with the caller's token.
"""

import functools
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fastapi import APIRouter, Request, Response

from kopitiam.gateway.context import Gateway, GatewayDep
from kopitiam.gateway.problems import Refusal
from kopitiam.results.charts.colours import NAMES, class_rules, colour

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CHART_COLOURS = "charts.css"
_STAMP = b"{{stamp}}"
_MEDIA_TYPES = {".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
_COMPRESS_FROM_BYTES = 512
_FOR_EVER = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"
_WORKER = "upload/worker.js"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'{}; "
    "worker-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class PageFile:
    """A file of the dashboard with its response headers."""

    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str


@functools.cache
def stamp() -> str:
    """Return a digest of all files. It is part of their addresses, so browsers may cache them for ever."""
    digest = hashlib.sha256()
    for content in _contents().values():
        digest.update(content)
    return digest.hexdigest()[:12]


@functools.cache
def page_file(name: str) -> PageFile | None:
    """Return the file of this name, None if there is none. Names are looked up, never used as paths."""
    content = _contents().get(name)
    if content is None:
        return None
    if name == INDEX:
        content = content.replace(_STAMP, stamp().encode())
    suffix = PurePosixPath(name).suffix
    kind = _MEDIA_TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, mtime=0) if len(content) > _COMPRESS_FROM_BYTES else None
    return PageFile(content, compressed, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


@functools.cache
def _contents() -> dict[str, bytes]:
    paths = {str(path.relative_to(STATIC)): path for path in sorted(STATIC.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items()} | {
        CHART_COLOURS: _chart_colours().encode()
    }


def _chart_colours() -> str:
    """Return a style sheet with the colours of charts, for light and dark mode."""
    pairs = " ".join(f"--chart-{name}: light-dark({colour(name)}, {colour(name, 'dark')});" for name in NAMES)
    return f":root {{ {pairs} }}\n{class_rules('.chart')}\n"


@router.get("/")
def page(request: Request, gateway: GatewayDep) -> Response:
    return _response(request, gateway, page_file(INDEX), _REVALIDATE)


@router.get("/favicon.ico")
def icon(request: Request, gateway: GatewayDep) -> Response:
    return _response(request, gateway, page_file("icon.svg"), _REVALIDATE)


@router.get("/static/{version}/{name:path}")
def static(version: str, name: str, request: Request, gateway: GatewayDep) -> Response:
    """Serve a file. A page of another version, from another gateway of the fleet, must not cache it. The
    policy of a worker comes with its file, and changes with the gateways of the fleet."""
    is_lasting = version == stamp() and name != _WORKER
    return _response(request, gateway, page_file(name), _FOR_EVER if is_lasting else _REVALIDATE)


def _response(request: Request, gateway: Gateway, file: PageFile | None, caching: str) -> Response:
    if file is None:
        raise Refusal(404, "not_found", "no such file")
    others = "".join(f" {origin}" for origin in sorted(gateway.neighbours.origins()))
    own = {"Cache-Control": caching, "ETag": file.etag, "Vary": "Accept-Encoding"}
    headers = HEADERS | own | {"Content-Security-Policy": _POLICY.format(others)}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    content = file.content
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = file.compressed, headers | {"Content-Encoding": "gzip"}
    return Response(content, media_type=file.media_type, headers=headers)
