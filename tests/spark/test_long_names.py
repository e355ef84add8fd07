"""A small body that decompresses to hundreds of megabytes of names (in full: a gigabyte) is answered."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS, Table
from kopitiam.questions.question_set import QuestionSet
from sampling import IS_FULL

STORES, CHUNK = (200_000, 50_000) if IS_FULL else (60_000, 20_000)  # more than is collected
SOLD_LATER = STORES // 3  # stores with sales in the second half-year too
FOUR_BYTES = "\N{SMILING FACE WITH SUNGLASSES}"
NAMES = [letter + FOUR_BYTES * (MAX_TEXT_CHARACTERS - 1) for letter in "cab"]
FIRST_HALF, SECOND_HALF = 1_709_294_400, 1_725_192_000  # seconds since 1970, at noon
ASKED = QuestionSet.select(Parameters(), names=["3"])


def with_dictionaries(_: Table, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", use_dictionary=True, store_schema=False)
    return bytes(sink.getvalue())


def stores(first: int) -> pa.Table:
    ids = pa.array(range(first, first + CHUNK), pa.int64())
    names = pa.array(NAMES).take(pa.array([number % len(NAMES) for number in range(first, first + CHUNK)]))
    return pa.table([ids, names], schema=ASKED.tables["stores"].schema)


def sales(first: int, count: int, seconds: int) -> pa.Table:
    """One for each store, of as many ten-thousandths as its number."""
    columns = {
        "store_id": range(first, first + count),
        "final_amount": range(first, first + count),
        "created_at": [seconds * 1_000_000] * count,
    }
    return pa.table(
        {name: list(values) for name, values in columns.items()}, ASKED.tables["transactions"].schema
    )


def expected_lines() -> Iterator[bytes]:
    yield b"year_half_created_at,store_name,tpv\n"
    for half, sold in (("2024-H1", STORES), ("2024-H2", SOLD_LATER)):
        for name in sorted(NAMES):
            prefix = f"{half},{name},".encode()
            for store in range(NAMES.index(name), sold, len(NAMES)):
                whole, units = divmod(store, 10_000)
                yield prefix + f"{whole}.{f'{units:04d}'.rstrip('0') or '0'}\n".encode()


@pytest.fixture
def pipeline(make_pipeline, tmp_path) -> Iterator:
    yield make_pipeline(tmp_path / "home")
    shutil.rmtree(tmp_path / "home")  # two gigabytes


@pytest.mark.long
def test_many_stores_with_the_longest_names_are_answered(pipeline):
    run = pipeline.open(ASKED)
    sent = 0
    for number, first in enumerate(range(0, STORES, CHUNK)):
        key = pipeline.put_table(run, "stores", number, stores(first), encode=with_dictionaries)
        sent += Path(pipeline.storage.url(key)).stat().st_size
        pipeline.put_table(run, "transactions", number, sales(first, CHUNK, FIRST_HALF))
    pipeline.put_table(run, "transactions", number + 1, sales(0, SOLD_LATER, SECOND_HALF))
    assert sent < 1 << 20
    pipeline.seal(run)
    pipeline.process()

    pipeline.finish(run)

    assert pipeline.state(run) is RunState.DONE, pipeline.reason(run)
    folder = pipeline.published(run)
    with (folder / "results_query_3.csv").open("rb") as file:
        assert all(line == expected for line, expected in zip(file, expected_lines(), strict=True))
    file_read = pq.ParquetFile(folder / "results_query_3.parquet", read_dictionary=["store_name"])
    assert file_read.metadata.num_rows == STORES + SOLD_LATER
    assert (
        max(file_read.metadata.row_group(n).num_rows for n in range(file_read.metadata.num_row_groups))
        < 10_000
    )
