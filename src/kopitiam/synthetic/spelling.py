"""Numbers as the chain's exports spell them: `63.5`, `17272.0`, UUIDs."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.contracts.money import to_text

HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), dtype="S2")
UUID_LENGTH = 36
UUID_GROUPS = ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36))  # where the hex digits stand between dashes


def money(units: NDArray[np.int64]) -> pa.Array:
    """Amounts repeat a lot: each distinct one is formatted once."""
    distinct, codes = np.unique(units, return_inverse=True)
    texts = pa.array([to_text(int(value)) for value in distinct])
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts)


def float_ids(ids: NDArray[np.int64], is_known: NDArray[np.bool_]) -> pa.Array:
    """Ids with a pointless `.0`, empty where unknown: what a dataframe makes of a nullable integer column."""
    digits = pc.cast(pa.array(ids, mask=~is_known), pa.string())
    return pc.binary_join_element_wise(digits, ".0", "")


def instants(seconds: NDArray[np.int64]) -> pa.Array:
    return pa.array(seconds).cast(pa.timestamp("s"))


def random_uuids(rng: Generator, rows: int) -> pa.Array:
    octets = rng.integers(0, 256, size=(rows, 16), dtype=np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80
    digits = HEX_PAIRS[octets].view(np.uint8).reshape(rows, 32)
    characters = np.full((rows, UUID_LENGTH), ord("-"), dtype=np.uint8)
    taken = 0
    for begin, end in UUID_GROUPS:
        characters[:, begin:end] = digits[:, taken : taken + end - begin]
        taken += end - begin
    offsets = np.arange(rows + 1, dtype=np.int32) * UUID_LENGTH
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(characters))
