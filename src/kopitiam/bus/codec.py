"""Messages as bytes: JSON, checked against the schema on arrival. Whatever does not fit is logged and
dropped, so that a node of another version, or a stranger, does no harm.
"""

import logging

import msgspec

from kopitiam.contracts.messages import Message

MAX_BYTES = 1 << 20
_SAMPLE = 200  # as much of it is logged
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_log = logging.getLogger(__name__)


def encode(message: Message) -> bytes:
    """`ValueError` for one that no receiver would take."""
    data = _encoder.encode(message)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{type(message).__name__} of {len(data):,} bytes, where {MAX_BYTES:,} are allowed")
    return data


def decode(data: bytes) -> Message | None:
    """None for anything but a message of this version."""
    if len(data) > MAX_BYTES:
        flaw = f"{len(data):,} bytes, where {MAX_BYTES:,} are allowed"
    else:
        try:
            return _decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            flaw = str(error)
    _log.warning("bus: dropped what is not a message (%s): %r", flaw[:_SAMPLE], data[:_SAMPLE])
    return None
