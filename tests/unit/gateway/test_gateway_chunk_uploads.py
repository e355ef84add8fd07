"""The headers of an upload: media type and digest."""

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.gateway.chunk_uploads import content_digest, media_type
from kopitiam.gateway.problems import Refusal

DIGEST = hashlib.sha256(b"body").digest()
SPELLED = f"sha-256=:{base64.b64encode(DIGEST).decode()}:"


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": raw}
    return Request(scope)


@pytest.mark.parametrize(
    "header", [SPELLED, f"md5=:AAAA:, {SPELLED}", f"{SPELLED},sha-512=:AAAA:", f" {SPELLED} "]
)
def test_a_digest_is_found_among_others(header: str) -> None:
    assert content_digest(request(content_digest=header)) == DIGEST


def test_the_digest_is_optional() -> None:
    assert content_digest(request()) is None


@given(st.text(st.characters(max_codepoint=255, exclude_characters="\x00"), max_size=80))
def test_a_header_without_a_digest_is_refused(header: str) -> None:
    with pytest.raises(Refusal) as refused:
        content_digest(request(content_digest=header))
    assert refused.value.status == 422


@pytest.mark.parametrize(
    "header", ["", "sha-256=::", "sha-256=:AAAA:", SPELLED[:-1], f"x{SPELLED}", "sha-256=:A:"]
)
def test_a_malformed_digest_is_refused(header: str) -> None:
    with pytest.raises(Refusal):
        content_digest(request(content_digest=header))


@pytest.mark.parametrize(
    ("header", "kind"),
    [(PARQUET, PARQUET), (CSV, CSV), ("Text/CSV; charset=utf-8", CSV), (f" {PARQUET.upper()} ;x=y", PARQUET)],
)
def test_parquet_and_csv_are_accepted(header: str, kind: str) -> None:
    assert media_type(request(content_type=header)) == kind


@pytest.mark.parametrize("header", ["", "text/csvx", "application/json", "text/csv,text/csv", "*/*"])
def test_other_media_types_are_refused(header: str) -> None:
    with pytest.raises(Refusal) as refused:
        media_type(request(content_type=header))
    assert refused.value.status == 415
