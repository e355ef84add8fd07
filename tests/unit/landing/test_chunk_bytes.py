"""The bytes of a chunk: the same for the same rows, one row group with statistics."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_tables import TABLES
from kopitiam.contracts.layout import KEYS, Home
from kopitiam.contracts.uuids import pack
from kopitiam.landing.chunks import encode

TRANSACTIONS = TABLES["transactions"]
USERS = TABLES["users"]


def sales(count=1000):
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    times = [datetime.fromtimestamp(start + 60 * n, UTC) for n in range(count)]
    columns = {
        "transaction_id": [f"t{n}" for n in range(count)],
        "store_id": [n % 10 for n in range(count)],
        "user_id": [None if n % 3 else n for n in range(count)],
        "final_amount": [n * 25 for n in range(count)],
        "created_at": times,
    }
    return pa.table(columns, schema=TRANSACTIONS.schema)


def test_a_chunk_is_one_row_group_with_statistics_of_its_time():
    rows = sales()
    metadata = pq.read_metadata(pa.BufferReader(encode(TRANSACTIONS, rows)))
    assert (metadata.num_row_groups, metadata.num_rows) == (1, 1000)
    created_at = metadata.row_group(0).column(rows.schema.get_field_index("created_at"))
    assert created_at.path_in_schema == "created_at"
    assert created_at.statistics.min == rows["created_at"][0].as_py()
    assert created_at.statistics.max == rows["created_at"][-1].as_py()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_chunk_has_the_declared_schema_even_without_rows(table):
    back = pq.read_table(pa.BufferReader(encode(table, table.schema.empty_table())))
    assert back.schema.equals(table.schema, check_metadata=False)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["0123abcd-0000-4abc-8def-ffffffffffff"] * 2, ["transaction_id_high", "transaction_id_low"]),
        (["a", "b"], ["transaction_id"]),
        (
            ["a", "0123abcd-0000-4abc-8def-ffffffffffff"],
            ["transaction_id", "transaction_id_high", "transaction_id_low"],
        ),
    ],
)
def test_a_chunk_has_ids_as_numbers_where_they_are_uuids(ids, names):
    rows = sales(2)
    packed = [*pack(pa.array(ids)), *rows.columns[1:]]
    data = encode(TRANSACTIONS, pa.Table.from_arrays(packed, schema=TRANSACTIONS.packed.schema))
    back = pq.read_table(pa.BufferReader(data))
    assert back.schema.names == [*names, *rows.schema.names[1:]]
    assert back.schema.field(names[0]).nullable == (len(names) > 2)
    assert back.select(rows.schema.names[1:]).equals(rows.select(rows.schema.names[1:]))


def test_the_same_rows_give_the_same_bytes_whatever_their_pieces():
    rows = sales()
    pieces = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 700), rows.slice(701)])
    assert encode(TRANSACTIONS, rows) == encode(TRANSACTIONS, pieces) == encode(TRANSACTIONS, sales())
    assert pq.read_table(pa.BufferReader(encode(TRANSACTIONS, pieces))).equals(rows)


def test_the_same_rows_give_the_same_bytes_where_no_amount_repeats():
    rows = sales(20_000)
    pieces = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 7_000), rows.slice(7_001)])
    assert encode(TRANSACTIONS, rows) == encode(TRANSACTIONS, pieces)


def test_a_large_dictionary_is_dropped():
    """One of nearly as many values as rows would make the chunk larger, and slower to write and to read."""
    group = pq.read_metadata(pa.BufferReader(encode(TRANSACTIONS, sales(100_000)))).row_group(0)
    amounts = group.column(TRANSACTIONS.schema.get_field_index("final_amount"))
    plain_bytes = 100_000 * 8
    assert amounts.total_uncompressed_size < plain_bytes * 1.1


def test_columns_that_repeat_are_kept_as_dictionaries():
    group = pq.read_metadata(pa.BufferReader(encode(TRANSACTIONS, sales()))).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert with_dictionary == {column.name for column in TRANSACTIONS.columns if column.repeats}


def test_chunk_paths_have_table_shard_and_run(tmp_path):
    key = KEYS.chunk("run-1", USERS.name, 3, 42)
    assert str(key) == "landing/table=users/shard=3/run=run-1/chunk-00042.parquet"
    assert Home(tmp_path).chunk("run-1", USERS.name, 3, 42) == tmp_path / key
