"""A digest of the input as it was sent, by which two reports are known to be about the same sales.

The same folder sent in another way, by the browser as CSV or by another version of the client, has another
one: its chunks are cut or encoded differently. That two fingerprints differ therefore proves nothing.
"""

import hashlib
from collections.abc import Iterable

from kopitiam.contracts.runs import ChunkRecord


def fingerprint(chunks: Iterable[ChunkRecord]) -> str:
    """Of every chunk its table, number, rows and the SHA-256 of its bytes, in an order of its own.

    When a chunk came, to which shard it went and how often it was sent make no difference.
    """
    lines = sorted(f"{chunk.table} {chunk.number:08d} {chunk.rows} {chunk.digest}\n" for chunk in chunks)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
