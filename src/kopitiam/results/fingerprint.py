"""A digest of the input, by which two reports are known to be about the same sales."""

import hashlib
from collections.abc import Iterable

from kopitiam.contracts.runs import ChunkRecord


def fingerprint(chunks: Iterable[ChunkRecord]) -> str:
    """Of every chunk its table, number, rows and the SHA-256 of its bytes, in an order of its own.

    When a chunk came, to which shard it went and how often it was sent make no difference.
    """
    lines = sorted(f"{chunk.table} {chunk.number:08d} {chunk.rows} {chunk.digest}\n" for chunk in chunks)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
