"""Tables to CSV files that are either whole or not there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from kopitiam.synthetic.chain import SMALL_TABLES, count

# No cell of the real profile needs quotes. The header is written apart, because pyarrow always quotes it.
PLAIN = pa_csv.WriteOptions(include_header=False, quoting_style="none", batch_size=16_384)
QUOTED = pa_csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=16_384)  # every text


@dataclass(frozen=True)
class Written:
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
    """Gets its name once it is complete: a killed run leaves no half file that looks whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with unfinished.open("wb") as file:
        yield file
    unfinished.replace(target)
