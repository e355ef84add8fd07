"""Encoding and decoding of messages: a round trip keeps the message, invalid bytes are dropped."""

import json
import logging
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.bus.delivery import MAX_BYTES, decode, encode
from kopitiam.contracts.messages import (
    Count,
    ForceEnd,
    Heartbeat,
    Instant,
    Message,
    Name,
    QueryId,
    Reason,
    RunId,
    Url,
)
from kopitiam.contracts.runs import RUN_ID
from kopitiam.contracts.sql_queries import QUERY_ID

KINDS = get_args(Message)
COUNTS = st.integers(0, 2**63 - 1)
RUNS = st.from_regex(RUN_ID, fullmatch=True)
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    RunId: RUNS,
    tuple[RunId, ...]: st.lists(RUNS).map(tuple),
    QueryId: st.from_regex(QUERY_ID, fullmatch=True),
    Reason | None: st.none() | st.text(max_size=1000),
    Name: st.text(min_size=1, max_size=100),
    Name | None: st.none() | st.text(min_size=1, max_size=100),
    Url | None: st.none() | st.text(min_size=1, max_size=2000),
    Count: COUNTS,
    Count | None: st.none() | COUNTS,
    Instant: st.floats(min_value=0, allow_infinity=False),
    dict[Count, tuple[Count, Count]]: st.dictionaries(COUNTS, st.tuples(COUNTS, COUNTS)),
}


def has_bounds(field_type: Any) -> bool:
    """Whether hypothesis, which does not know the bounds of msgspec, may make invalid values of this type."""
    return hasattr(field_type, "__metadata__") or any(map(has_bounds, get_args(field_type)))


def of_kind(kind: type) -> st.SearchStrategy[Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return st.builds(
        kind,
        **{name: STRATEGIES.get(field_type, st.from_type(field_type)) for name, field_type in fields.items()},
    )


MESSAGES = st.one_of(*map(of_kind, KINDS))


@given(MESSAGES)
def test_a_message_survives_encoding_and_decoding(message: Message) -> None:
    assert decode(encode(message)) == message


def test_every_type_with_bounds_has_a_strategy() -> None:
    field_types = {field.type for kind in KINDS for field in msgspec.structs.fields(kind)}
    assert {field_type for field_type in field_types if has_bounds(field_type)} <= set(STRATEGIES)


def test_a_heartbeat_of_another_version_is_accepted_with_more_or_fewer_fields() -> None:
    beat = Heartbeat(node="p", kind="pipeline", epoch=1, pid=2, url=None, sent_at=3.0)
    fields = json.loads(encode(beat))
    later = fields | {"host": "h1", "version": "9.0", "mood": "good"}
    assert decode(json.dumps(later).encode()) == msgspec.structs.replace(beat, host="h1", version="9.0")
    earlier = {name: value for name, value in fields.items() if name not in ("host", "version", "alarm")}
    assert decode(json.dumps(earlier).encode()) == beat


@given(st.binary())
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    assert decode(data) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.sampled_from([kind.__struct_config__.tag for kind in KINDS]), st.dictionaries(st.text(), JSON))
def test_arbitrary_fields_of_a_known_type_never_raise(tag: str, content: dict[str, Any]) -> None:
    data = json.dumps(content | {"type": tag}).encode()
    message = decode(data)
    assert message is None or message.__struct_config__.tag == tag


@given(MESSAGES, st.data())
def test_a_truncated_message_is_dropped(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    assert decode(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b'{"type":"GOSSIP","sender":1,"v":1}', "GOSSIP"),
        (b'{"type":"ELECTION","sender":1,"v":2}', "v"),
        (b'{"type":"ELECTION","sender":"1","v":1}', "sender"),
        (b'{"type":"ELECTION","v":1}', "sender"),
        (b'{"type":"ELECTION","sender":1,"v":1,"also":0}', "also"),
        (b'{"type":"ELECTION","sender":-1,"v":1}', "sender"),
        (b'{"type":"ELECTION","sender":9223372036854775808,"v":1}', "sender"),
        (b'{"type":"FORCE_END","runs":["*"],"reason":"","v":1}', "runs"),
        (b'{"type":"FORCE_END","runs":["0123456789abcdef\\n"],"reason":"","v":1}', "runs"),
        (b'{"type":"PROVISIONAL_WANTED","run":"../0123456789abcdef","v":1}', "run"),
        (b'{"type":"STOPPED","node":"","epoch":1,"v":1}', "node"),
        (b'{"type":"STOPPED","node":"' + b"n" * 101 + b'","epoch":1,"v":1}', "node"),
        (b'{"sender":1,"v":1}', "type"),
        (b"[" * 100_000, "array"),
        (b'{"type":"ELECTION","also":' + b"[" * 100_000, "also"),
        (b'{"type":"ELECTION","sender":' + b"9" * 10_000 + b"}", "sender"),
        (b"\x80\x04\x95", "malformed"),
    ],
)
def test_an_invalid_message_is_dropped_and_one_short_warning_names_the_flaw(data, flaw, caplog) -> None:
    assert decode(data) is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert flaw in record.getMessage()
    assert len(record.getMessage()) < 1000
    assert "\n" not in record.getMessage()


def test_a_message_over_the_size_limit_is_neither_encoded_nor_decoded(caplog) -> None:
    largest = MAX_BYTES - len(encode(ForceEnd(runs=(), reason="")))
    assert decode(encode(ForceEnd(runs=(), reason="x" * largest))) is not None
    with pytest.raises(ValueError, match="1,048,577 bytes"):
        encode(ForceEnd(runs=(), reason="x" * (largest + 1)))
    assert decode(b'{"type":"ELECTION","sender":1}' + b" " * MAX_BYTES) is None
    assert len(caplog.text) < 1000
