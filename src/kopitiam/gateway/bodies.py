"""Bodies on their way in: streamed to a file, bounded in size and in patience, with their digest."""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from starlette.requests import ClientDisconnect

from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.gateway.pace import Pace
from kopitiam.gateway.problems import Refusal


@dataclass(frozen=True)
class Body:
    path: Path
    media_type: str
    size: int
    digest: str
    file: str = ""  # where a CSV body was cut from, and on which line its first row stands there
    line: int | None = None


def media_type(request: Request) -> str:
    named = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if named not in {PARQUET, CSV}:
        raise Refusal(415, "media_type", f"Content-Type {named or 'is missing'}: want {PARQUET} or {CSV}")
    return named


async def receive(request: Request, path: Path, max_bytes: int, pace: Pace) -> Body:
    """The body as a file. Raises Refusal if it is late, broken off, too large or not what its digest says."""
    kind = media_type(request)
    wanted = _wanted_digest(request)
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise _too_large(max_bytes)
    sha, size = hashlib.sha256(), 0
    try:
        with path.open("xb") as file:
            async with pace.kept():
                async for piece in request.stream():
                    size += len(piece)
                    if size > max_bytes:
                        raise _too_large(max_bytes)
                    sha.update(piece)
                    file.write(piece)
                    pace.add(len(piece))
    except ClientDisconnect:
        raise Refusal(400, "truncated", "the connection broke inside the body") from None
    if wanted is not None and wanted != sha.digest():
        raise Refusal(422, "digest", "the body does not have the Content-Digest that was sent with it")
    return Body(path, kind, size, sha.hexdigest())


def _wanted_digest(request: Request) -> bytes | None:
    """RFC 9530: `sha-256=:<base64>:`, among others perhaps."""
    header = request.headers.get("content-digest")
    if header is None:
        return None
    found = re.search(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):", header)
    try:
        digest = base64.b64decode(found.group(1), validate=True) if found else b""
    except binascii.Error:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise Refusal(422, "digest", "Content-Digest: want sha-256=:<base64>:")
    return digest


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(413, "too_large", f"more than {max_bytes:,} bytes; send smaller chunks")
