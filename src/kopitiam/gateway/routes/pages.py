"""The dashboard's files. They hold no data: whatever the page shows, it asks for with the caller's token."""

from fastapi import APIRouter, Request, Response

from kopitiam.gateway.dashboard.files import INDEX, PageFile, page_file, stamp
from kopitiam.gateway.problems import Refusal

router = APIRouter(include_in_schema=False)
_KEEP = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "worker-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@router.get("/")
def page(request: Request) -> Response:
    return _answer(request, page_file(INDEX), _ASK_AGAIN)


@router.get("/favicon.ico")
def icon(request: Request) -> Response:
    return _answer(request, page_file("icon.svg"), _ASK_AGAIN)


@router.get("/static/{of}/{name:path}")
def static(of: str, name: str, request: Request) -> Response:
    """Another gateway of the fleet may be of another version: what it asks for here, it must not keep."""
    return _answer(request, page_file(name), _KEEP if of == stamp() else _ASK_AGAIN)


def _answer(request: Request, file: PageFile | None, caching: str) -> Response:
    if file is None:
        raise Refusal(404, "not_found", "no such file")
    headers = HEADERS | {"Cache-Control": caching, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    content = file.content
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = file.compressed, headers | {"Content-Encoding": "gzip"}
    return Response(content, media_type=file.media_type, headers=headers)
