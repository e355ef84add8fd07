"""The examination of bodies, in the same process."""

import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS
from kopitiam.gateway.examination import Finding, Order, examine
from kopitiam.intake.blocks import read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm
from kopitiam.landing.chunks import encode

TEXT = "user_id,birthdate\n1,1990-01-01\n2,\nbad,\n"


@pytest.fixture
def order(tmp_path: Path) -> Order:
    body = tmp_path / "x.body"
    body.write_text(TEXT)
    parquet, rejected = str(tmp_path / "x.parquet"), str(tmp_path / "x.rejected")
    return ordered("users", body, parquet, rejected)


def ordered(table: str, body: Path, parquet: str, rejected: str) -> Order:
    columns = TABLES[table].schema.names
    return Order(str(body), CSV, table, columns, parquet, rejected, max_bytes=10_000, max_rows=100)


def altered(order: Order, **changes: object) -> Order:
    if table := changes.get("table"):
        changes["columns"] = TABLES[str(table)].schema.names
    return Order(**(vars(order) | changes))


def test_csv_becomes_normal_form_and_a_file_of_rejected_rows(order: Order) -> None:
    assert examine(order) == Finding(rows=2, rejected=1)
    assert Path(order.rejected).read_text().count("bad,") == 1
    again = altered(order, body=order.parquet, media_type=PARQUET)
    assert examine(again) == Finding(rows=2)


def test_a_storage_error_is_a_failure_and_no_refusal(order: Order, tmp_path: Path) -> None:
    for elsewhere in ({"parquet": "/dev/full"}, {"parquet": str(tmp_path)}, {"body": str(tmp_path / "gone")}):
        finding = examine(altered(order, **elsewhere))
        assert finding.refusal is None
        assert finding.failure, elsewhere


def test_a_refusal_does_not_name_files_of_the_gateway(order: Order) -> None:
    Path(order.body).write_text('"user_id')
    refusal = examine(order).refusal
    assert refusal
    assert "chunk of users, line 1" in refusal
    assert order.body not in refusal


def test_a_body_that_decompresses_beyond_the_limit_is_refused(order: Order, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("item_id,item_name\n" + f"1,{'x' * 900}\n" * 100)
    table = TABLES["menu_items"]
    form = NormalForm(table, read_header(names), "names")
    Path(order.body).write_bytes(encode(table, form.normalize(next(read_blocks(names))).rows))
    sound = altered(order, media_type=PARQUET, table="menu_items", max_bytes=100_000)
    assert examine(sound) == Finding(rows=100)
    assert "bytes in memory" in str(examine(altered(sound, max_bytes=5_000)).refusal)
    assert "rows" in str(examine(altered(sound, max_rows=99)).refusal)


def test_text_over_its_bound_is_refused(order: Order) -> None:
    """The limit counts code points: these take four bytes each."""

    def finding(name: str) -> Finding:
        rows = pa.table({"store_id": [1], "store_name": [name]}, TABLES["stores"].schema)
        Path(order.body).write_bytes(encode(TABLES["stores"], rows))
        return examine(altered(order, media_type=PARQUET, table="stores", max_bytes=1 << 20))

    assert finding("\U0001f375" * MAX_TEXT_CHARACTERS) == Finding(rows=1)
    refusal = finding("\U0001f375" * (MAX_TEXT_CHARACTERS + 1)).refusal
    assert refusal == "store_name has texts of more than 1,024 characters"


USERS = pa.table(
    {"user_id": [3, 1, 2], "birthdate": [date(1990, 1, 1), None, date(1, 1, 1)]}, TABLES["users"].schema
)


def users_as(rows: pa.Table = USERS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **({"store_schema": False, "use_dictionary": False} | options))
    return sink.getvalue()


def with_type(name: str, kind: pa.DataType) -> pa.Table:
    index = USERS.schema.get_field_index(name)
    return USERS.set_column(index, name, USERS[name].cast(kind))


REFUSED = {
    "brotli": (users_as(compression="brotli"), "codec brotli is not accepted"),
    "delta": (
        users_as(column_encoding="DELTA_BINARY_PACKED"),
        "encoding DELTA_BINARY_PACKED is not accepted",
    ),
    "byte stream split": (users_as(column_encoding="BYTE_STREAM_SPLIT"), "encoding BYTE_STREAM_SPLIT"),
    "page index": (users_as(write_page_index=True), "page indexes are not accepted"),
    "row groups": (users_as(pa.concat_tables([USERS] * 22), row_group_size=1), "66 row groups"),
    "narrow integers": (users_as(with_type("user_id", pa.int32())), "not the normal form"),
    "unsigned integers": (users_as(with_type("user_id", pa.uint64())), "not the normal form"),
    "decimals": (users_as(with_type("user_id", pa.decimal128(19, 0))), "not the normal form"),
    "lists": (users_as(pa.table({"user_id": [[1]], "birthdate": [None]})), "not the normal form"),
    "structs": (users_as(pa.table({"user_id": [{"user_id": 1}], "birthdate": [1]})), "not the normal form"),
    "two of a name": (users_as(USERS.append_column("user_id", USERS["user_id"])), "not the normal form"),
    "another case": (users_as(USERS.append_column("USER_ID", USERS["user_id"])), "not the normal form"),
    "Spark 2": (
        users_as(USERS.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), store_schema=True),
        "calendar of Spark 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_parquet_formats_are_refused_with_the_reason(order: Order, name: str) -> None:
    body, reason = REFUSED[name]
    Path(order.body).write_bytes(body)
    assert reason in str(examine(altered(order, media_type=PARQUET)).refusal)


ID, NUMBERS = "0123abcd-0000-4abc-8def-ffffffffffff", (0x0123ABCD00004ABC, 0x8DEFFFFFFFFFFFFF - (1 << 64))
HIGH, LOW = "transaction_id_high", "transaction_id_low"


def sales_with(ids: dict[str, list[Any]]) -> bytes:
    """Two sales with these columns in place of their ids."""
    numbers = {name: pa.array(cells, pa.int64()) for name, cells in ids.items() if name in (HIGH, LOW)}
    others = {
        "store_id": [1, 1],
        "user_id": pa.array([None, 7], pa.int64()),
        "final_amount": [5, 6],
        "created_at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
    }
    return users_as(pa.table(ids | numbers | others))


@pytest.mark.parametrize(
    "ids",
    [
        {"transaction_id": [ID, "a"]},
        {HIGH: [NUMBERS[0], -(2**63)], LOW: [NUMBERS[1], 2**63 - 1]},
        {"transaction_id": [None, "a"], HIGH: [NUMBERS[0], None], LOW: [NUMBERS[1], None]},
    ],
)
def test_ids_are_accepted_as_texts_as_numbers_and_mixed(order: Order, ids: dict[str, list[Any]]) -> None:
    Path(order.body).write_bytes(sales_with(ids))
    assert examine(altered(order, media_type=PARQUET, table="transactions")) == Finding(rows=2)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({HIGH: [1, 2]}, "not the normal form"),
        ({HIGH: [1, 2], LOW: [1, None]}, "transaction_id_low has empty values"),
        ({"transaction_id": ["a", None], HIGH: [None, 1], LOW: [None, None]}, "without the other"),
        ({"transaction_id": ["a", "b"], HIGH: [None, 1], LOW: [None, 1]}, "a text and a UUID in one row"),
        ({"transaction_id": ["a", None], HIGH: [None] * 2, LOW: [None] * 2}, "has empty values"),
        ({"transaction_id": ["a", ""], HIGH: [None, 1], LOW: [None, 1]}, "has empty values"),
    ],
)
def test_ids_that_are_missing_halved_or_there_twice_are_refused(
    order: Order, ids: dict[str, list[Any]], reason: str
) -> None:
    Path(order.body).write_bytes(sales_with(ids))
    assert reason in str(examine(altered(order, media_type=PARQUET, table="transactions")).refusal)


def test_ids_of_a_csv_body_are_stored_as_numbers(order: Order) -> None:
    header = "transaction_id,store_id,user_id,final_amount,created_at"
    Path(order.body).write_text(f"{header}\n{ID},1,,75,2024-01-01 10:00:00\n")
    sales = altered(order, table="transactions")
    assert examine(sales) == Finding(rows=1)
    stored = pq.read_table(order.parquet)
    assert stored.schema.names[:2] == [HIGH, LOW]
    assert (stored[HIGH].to_pylist(), stored[LOW].to_pylist()) == ([NUMBERS[0]], [NUMBERS[1]])
    assert examine(altered(sales, body=order.parquet, media_type=PARQUET)) == Finding(rows=1)


def test_dates_of_int96_are_refused(order: Order) -> None:
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    items = pa.table({"item_id": [1], "quantity": [1], "subtotal": [1], "created_at": times})
    items_order = altered(order, media_type=PARQUET, table="transaction_items")
    Path(order.body).write_bytes(users_as(items))
    assert examine(items_order) == Finding(rows=1)
    Path(order.body).write_bytes(users_as(items, use_deprecated_int96_timestamps=True))
    assert "not the normal form" in str(examine(items_order).refusal)


def replaced_in_footer(body: bytes, old: bytes, new: bytes) -> bytes:
    """Replace bytes in the footer, which no checksum protects."""
    footer = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    assert old in body[footer:]
    return body[:footer] + body[footer:].replace(old, new)


def test_statistics_that_do_not_hold_are_refused(order: Order) -> None:
    """Spark would skip the row group and lose its rows without an error."""
    sound = users_as()
    for old, new in ((3, 2), (1, 2)):  # the greatest and the least user_id
        lying = replaced_in_footer(sound, old.to_bytes(8, "little"), new.to_bytes(8, "little"))
        Path(order.body).write_bytes(lying)
        refusal = examine(altered(order, media_type=PARQUET)).refusal
        assert refusal == "user_id: the statistics in its footer do not fit its values"
    wide = replaced_in_footer(sound, (3).to_bytes(8, "little"), (9).to_bytes(8, "little"))
    for fine in (wide, users_as(write_statistics=False)):
        Path(order.body).write_bytes(fine)
        assert examine(altered(order, media_type=PARQUET)) == Finding(rows=3)


def test_a_page_with_a_wrong_checksum_is_refused(order: Order) -> None:
    """Spark checks it too, but only once the run is sealed."""
    body = users_as(compression="none", write_page_checksum=True)
    damaged = body.replace((2).to_bytes(8, "little"), (7).to_bytes(8, "little"), 1)
    assert damaged != body
    Path(order.body).write_bytes(damaged)
    assert examine(altered(order, media_type=PARQUET)).refusal
