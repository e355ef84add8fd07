"""CSV files as the chain exports them: the spelling of numbers and ids, and the writing of files.

Files appear only when they are complete.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.random import Generator
from numpy.typing import NDArray

from kopitiam.contracts.money import to_text
from kopitiam.synthetic.chain import SMALL_TABLES, count

HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), dtype="S2")
UUID_LENGTH = 36
UUID_GROUPS = ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36))  # positions of hex digits between dashes


def money(units: NDArray[np.int64]) -> pa.Array:
    """Spell amounts, such as `63.5`; each distinct amount is formatted once."""
    distinct, codes = np.unique(units, return_inverse=True)
    texts = pa.array([to_text(int(value)) for value in distinct])
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts)


def float_ids(ids: NDArray[np.int64], is_known: NDArray[np.bool_]) -> pa.Array:
    """Spell ids as dataframes export nullable integers: with `.0`, and empty if unknown."""
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


# No cell of the real profile needs quotes. Pyarrow always quotes a header, so it is written separately.
PLAIN = pa_csv.WriteOptions(include_header=False, quoting_style="none", batch_size=16_384)
QUOTED = pa_csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=16_384)  # every text


@dataclass(frozen=True)
class Written:
    """One file that was written."""

    """One file that was written."""

    table: str
    rows: int
    bytes: int


def write_month(out: Path, name: str, label: str, table: pa.Table, has_texts: bool = False) -> Written:
    target = out / name / f"{name}_{label}.csv"
    with _whole_file(target) as file:
        file.write(",".join(table.column_names).encode() + b"\n")
        pa_csv.write_csv(table, file, QUOTED if has_texts else PLAIN)
    return Written(name, table.num_rows, target.stat().st_size)


def write_small_table(out: Path, name: str) -> Written:
    return write_text(out, name, SMALL_TABLES[name], count(SMALL_TABLES[name]))


def write_text(out: Path, name: str, text: str, rows: int) -> Written:
    target = out / name / f"{name}.csv"
    with _whole_file(target) as file:
        file.write(text.encode())
    return Written(name, rows, target.stat().st_size)


@contextmanager
def _whole_file(target: Path) -> Iterator[BinaryIO]:
    """Rename the file when it is complete, so that a killed process leaves no partial CSV file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with unfinished.open("wb") as file:
        yield file
    unfinished.replace(target)
